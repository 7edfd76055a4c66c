"""What later processes use again: kept on disk, found by what it depends on, refused where anything differs."""
