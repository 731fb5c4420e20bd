"""The engines that ours is compared with: installed, started, loaded and stopped the same way.

``python -m benchmarks.peers install [vllm] [llama]`` puts each into a separate environment under
``~/.cache/hostelry/peers`` (XDG_CACHE_HOME is heeded). ``python -m benchmarks.peers list`` says
which are installed. transformers + PEFT come with the project's own test dependencies.
"""
