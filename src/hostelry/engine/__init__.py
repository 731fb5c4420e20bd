"""The multi-LoRA LLM engine: knows tokens, not AWS; usable alone as a library.

What a request's tokens depend on: its prompt, its adapter, its sampling values and its seed. In
fp32 its greedy tokens are those of transformers + PEFT, alone or in any company, in whatever chunks
its prompt was computed, and after a preemption. The logits behind them are equal to about 1e-5 of
the largest, not to the last bit: batched products and attention sum in an order that depends on the
shape of the batch. In bf16 logits stay within 6e-2 of the largest logit of the fp32 model, so that
two nearly equal candidates may change places with the company.
"""
