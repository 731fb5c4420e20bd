"""Files of models and adapters: fetched once per instance, unpacked safely, in a bounded cache."""
