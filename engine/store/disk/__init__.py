"""Port to a file system, with a disk and a memory behind it, and what systems do differently."""
