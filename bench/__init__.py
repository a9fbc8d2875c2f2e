"""The benchmark, `waterspout bench`: compares this server with hand-written servers (`floor`), other libraries
(`peers`) and the limits of PostgreSQL. It may import the whole project; only the command line imports it. It is not
installed with the server: it runs in a clone of the repository.
"""
