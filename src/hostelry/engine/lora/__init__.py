"""LoRA adapters: applied exactly as PEFT would, or refused naming the field."""
