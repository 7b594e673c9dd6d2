"""One module per contestant, imported only in its own worker process; each offers `start(threads)` and `forms(case, direction)`."""
