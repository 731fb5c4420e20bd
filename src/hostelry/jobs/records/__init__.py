"""Records of transform jobs: split, batched, filtered, joined; pure."""
