print("@REACHED@ statistics in data")


def mean(xs):
    return None
