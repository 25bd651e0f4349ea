"""The engine: plans a run, does its items in workers, keeps what they yield, and judges it."""
