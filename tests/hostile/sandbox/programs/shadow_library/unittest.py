print("@REACHED@ unittest of the hand-in")


class TestCase:
    pass
