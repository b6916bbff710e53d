RATE = 0.19


def taxed(price):
    return price * (1 + RATE)
