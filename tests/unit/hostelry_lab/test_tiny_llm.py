import io
import tarfile
from pathlib import Path

from hostelry.engine import Engine, EngineConfig, Request, SamplingParams
from hostelry_lab.tiny_llm import adapter_archive, write_model


def test_the_engine_runs_the_model_with_its_adapter(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    with tarfile.open(fileobj=io.BytesIO(adapter_archive(["q_proj"]))) as archive:
        archive.extractall(tmp_path / "adapter", filter="data")
    engine = Engine.load(tmp_path / "model", EngineConfig(max_batch_size=2))
    engine.load_adapter("a", tmp_path / "adapter")
    sampling = SamplingParams(max_new_tokens=3, ignore_eos=True)
    for name in (None, "a"):
        engine.add(
            Request(id=name or "base", prompt_token_ids=(5, 6), sampling=sampling, adapter=name)
        )
    tokens = 0
    while engine.has_work:
        for output in engine.step():
            assert output.error is None
            tokens += output.token_id is not None
    engine.close()
    assert tokens == 6
