def test_all():
    pass
