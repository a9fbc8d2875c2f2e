"""The benchmark, `waterspout bench`: compares this server with hand-written servers (`floor`), other libraries
(`peers`) and the limits of PostgreSQL. It may import the whole project; only the command line imports it.
"""
