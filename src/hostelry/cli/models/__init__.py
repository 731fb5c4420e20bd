"""Models as people name them: listed, removed, scaled, given adapters, over AWS's APIs."""
