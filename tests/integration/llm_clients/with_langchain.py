"""Calls the server at URL through LangChain's OpenAI classes, and prints the results as JSON."""

import asyncio
import json
import os

from langchain_openai import ChatOpenAI, OpenAI, OpenAIEmbeddings
from pydantic import BaseModel, Field

SERVER = {"base_url": os.environ["URL"], "api_key": os.environ["KEY"], "max_retries": 0}
MODEL, ENCODER = os.environ["MODEL"], os.environ.get("ENCODER")
MESSAGES = [("system", "be brief"), ("human", "hello")]


class Verdict(BaseModel):
    """A judgement."""

    good: bool
    reason: str = Field(pattern="^[a-z]{1,8}$")


def chat(**more: object) -> ChatOpenAI:
    """A greedy chat of at most 12 tokens."""
    return ChatOpenAI(model=MODEL, temperature=0, **{"max_tokens": 12, **more}, **SERVER)


async def several() -> list[str]:
    """Get three chats at the same time."""
    return [str(it.content) for it in await chat().abatch([MESSAGES] * 3)]


whole = chat().invoke(MESSAGES)
pieces = list(chat(stream_usage=True).stream(MESSAGES))
scored = chat(logprobs=True, top_logprobs=2).invoke("hello")
verdict = chat(max_tokens=200).with_structured_output(Verdict, method="json_schema").invoke("judge")
judge = chat(max_tokens=200).bind_tools([Verdict], tool_choice="any", parallel_tool_calls=False)
(call,) = judge.invoke("judge").tool_calls
print(
    json.dumps(
        {
            "chat": whole.content,
            "stream": "".join(str(it.content) for it in pieces),
            "tokens": [it.usage_metadata["output_tokens"] for it in pieces if it.usage_metadata],
            "usage": whole.usage_metadata["output_tokens"],
            "several": asyncio.run(several()),
            "scores": len(scored.response_metadata["logprobs"]["content"]),
            "structured": type(verdict.good).__name__,
            "call": call["args"],
            "completion": OpenAI(model=MODEL, max_tokens=12, temperature=0, **SERVER).invoke("hi"),
            "vector": OpenAIEmbeddings(
                model=ENCODER,
                base_url=os.environ["ENCODER_URL"],
                api_key=os.environ["KEY"],
                check_embedding_ctx_length=False,
            ).embed_documents(["the sea is blue", "cats sleep all day"])
            if ENCODER
            else None,
        }
    )
)
