"""The mathematics: arrays in, arrays out.  No clock, no file, no network, no log."""
