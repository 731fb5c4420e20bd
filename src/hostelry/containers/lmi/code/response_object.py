"""A response as an output formatter sees it: a dictionary, and an object with the same fields.

Formatters of LMI's guides read `response["generated_text"]`, those of its examples
`response.choices[0].text`. Both work on one object; the form that was changed is the one written.
"""

import json
from typing import Any


class ResponseRecord(dict[str, Any]):
    """A dictionary whose members are attributes, too; those inside it likewise."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"the response has no field {name!r}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __delattr__(self, name: str) -> None:
        self.pop(name, None)

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """The fields as a dictionary."""
        return dict(self)

    def model_dump_json(self, **_: Any) -> str:
        """The fields as JSON."""
        return written(dict(self))


class LmiResponse(ResponseRecord):
    """A response in LMI's form as a dictionary, and in OpenAI's form as attributes."""

    def __init__(self, lmi: dict[str, Any], openai: ResponseRecord) -> None:
        super().__init__(lmi)
        object.__setattr__(self, "_openai", openai)
        object.__setattr__(self, "_first", written(openai))

    def __getattr__(self, name: str) -> Any:
        if name in self:
            return self[name]
        return getattr(object.__getattribute__(self, "_openai"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        object.__getattribute__(self, "_openai")[name] = value

    def model_dump(self, **_: Any) -> dict[str, Any]:
        """The fields of the form that was changed; of LMI's where none was."""
        openai = object.__getattribute__(self, "_openai")
        is_changed = written(openai) != object.__getattribute__(self, "_first")
        return dict(openai) if is_changed else dict(self)

    def model_dump_json(self, **_: Any) -> str:
        """Those fields as JSON."""
        return written(self.model_dump())


def response_object(response: bytes, lmi: bytes | None) -> ResponseRecord:
    """The object of a response in OpenAI's form, and in LMI's where it has that."""
    openai = record_of(json.loads(response))
    return openai if lmi is None else LmiResponse(record_of(json.loads(lmi)), openai)


def record_of(value: Any) -> Any:
    """`value` with every dictionary as a record."""
    if isinstance(value, dict):
        return ResponseRecord({name: record_of(it) for name, it in value.items()})
    if isinstance(value, list):
        return [record_of(it) for it in value]
    return value


def written(value: Any) -> str:
    """A value as JSON. Raises ValueError or TypeError for what JSON has no form for."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def formatted_text(result: Any) -> str:
    """The text that a formatter's result stands for. Raises TypeError, ValueError."""
    if isinstance(result, str):
        return result
    for name in ("model_dump_json", "model_dump"):
        if hasattr(result, name):
            result = getattr(result, name)()
            break
    if isinstance(result, str):
        return result
    if not isinstance(result, dict):
        raise TypeError(f"the output formatter returned {type(result).__name__}, not a dict or str")
    return written(result)
