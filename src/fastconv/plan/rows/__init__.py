"""One module per algorithm of the library: what it refuses, what it costs, how much scratch it takes."""
