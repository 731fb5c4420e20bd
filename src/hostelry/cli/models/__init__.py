"""Commands on models by NAME, over AWS's APIs: list, remove, scale, and add adapters."""
