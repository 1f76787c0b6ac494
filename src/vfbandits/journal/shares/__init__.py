"""What the two servers of secret shares keep on their disks, one SQLite file each."""
