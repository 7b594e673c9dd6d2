"""Measures fastconv against its peers: the case list, contestants in processes of their own, the check, the table."""
