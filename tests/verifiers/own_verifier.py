"""A user's verifier for the tests: it hangs, crashes or eats memory when the response asks for it."""

import os


def moody(problem, response):
    if response == "hang":
        while True:
            pass
    if response == "hang in C":
        return 10**10**10
    if response == "crash":
        os.abort()
    if response == "eat":
        return len("x" * (1 << 40))
    return response == problem.reference
