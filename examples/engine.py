"""The engine as a library: one base model, several adapters and tenants in one batch.

    hostelry demo-model ./smollm2
    python examples/engine.py --model ./smollm2

Loads the three trained adapters beside this file, asks the same question through each of them and
through the base model in one batch, replaces an adapter while it is in use, and shows how a tenant
reaches its quota.
"""

import argparse
from pathlib import Path

from tokenizers import Tokenizer

from hostelry.engine import (
    Engine,
    EngineConfig,
    QuotaExceededError,
    Request,
    SamplingParams,
    TenantPolicies,
    TenantPolicy,
)

ADAPTERS = Path(__file__).resolve().parent / "adapters"
STYLES = ("es", "fr", "pirate")
QUESTION = (
    "<|im_start|>user\nGive me a creative excuse to skip the party.<|im_end|>\n"
    "<|im_start|>assistant\n"
)


def answers(engine: Engine) -> dict[str, list[int]]:
    """Run everything that was added; the tokens of each request."""
    tokens: dict[str, list[int]] = {}
    while engine.has_work:
        for output in engine.step():
            if output.error is not None:
                raise RuntimeError(f"{output.request_id}: {output.error}")
            if output.token_id is not None:
                tokens.setdefault(output.request_id, []).append(output.token_id)
    return tokens


def main() -> None:
    """Load, ask, replace, and meet a quota."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, required=True, help="a Hugging Face model folder")
    folder = parser.parse_args().model

    tenants = TenantPolicies(table={"hasty": TenantPolicy(max_concurrent=1)})
    engine = Engine.load(folder, EngineConfig(max_batch_size=8), tenants=tenants)
    for warning in engine.warnings:
        print("warning:", warning)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    prompt = tuple(tokenizer.encode(QUESTION).ids)
    sampling = SamplingParams(max_new_tokens=40)

    for style in STYLES:
        adapter = engine.load_adapter(style, ADAPTERS / style)
        print(f"{style}: rank {adapter.summary.rank}, {adapter.summary.num_pages} pages")
    for name in (None, *STYLES):
        engine.add(
            Request(id=name or "base", prompt_token_ids=prompt, sampling=sampling, adapter=name)
        )
    for name, tokens in answers(engine).items():
        print(f"\n[{name}] {tokenizer.decode(tokens)}")

    # A new version under the same name: who runs ends on the old one, who comes gets the new one.
    engine.add(Request(id="old", prompt_token_ids=prompt, sampling=sampling, adapter="es"))
    engine.step()
    engine.replace_adapter("es", ADAPTERS / "fr")
    engine.add(Request(id="new", prompt_token_ids=prompt, sampling=sampling, adapter="es"))
    for name, tokens in answers(engine).items():
        print(f"\n[es, {name} version] {tokenizer.decode(tokens)}")

    hasty = Request(id="first", prompt_token_ids=prompt, sampling=sampling, tenant="hasty")
    engine.add(hasty)
    try:
        engine.add(Request(id="second", prompt_token_ids=prompt, sampling=sampling, tenant="hasty"))
    except QuotaExceededError as error:
        print(f"\nrefused: {error}")
    engine.abort("first")
    pages = engine.stats.pages
    print(
        f"\n{pages.num_adapters} adapters in {pages.num_adapter_pages} pages of {pages.num_pages}"
    )
    engine.close()


if __name__ == "__main__":
    main()
