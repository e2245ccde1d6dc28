"""Primes, the slow way."""


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, n))


TABLE = [n for n in range(10_000_000) if is_prime(n)]
