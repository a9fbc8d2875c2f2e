"""The benchmark, `waterspout bench`: this server beside a hand-written one (`floor`), other libraries (`peers`) and
what PostgreSQL allows at all. It is on top and may import all of the project; only the command line imports it.
"""
