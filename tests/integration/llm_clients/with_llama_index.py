"""Calls the server at URL by LlamaIndex's OpenAI-like classes, and prints the results as JSON."""

import asyncio
import json
import os

from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike

SERVER = {"api_base": os.environ["URL"], "api_key": os.environ["KEY"], "max_retries": 0}
MODEL, ENCODER = os.environ["MODEL"], os.environ.get("ENCODER")
MESSAGES = [
    ChatMessage(role="system", content="be brief"),
    ChatMessage(role="user", content="hello"),
]


def llm(**more: object) -> OpenAILike:
    """A greedy model of at most 12 tokens."""
    return OpenAILike(
        model=MODEL,
        temperature=0,
        context_window=256,
        is_chat_model=True,
        **{"max_tokens": 12, **more},
        **SERVER,
    )


async def several() -> list[str]:
    """Get three chats at the same time."""
    answers = await asyncio.gather(*(llm().achat(MESSAGES) for _ in range(3)))
    return [str(it.message.content) for it in answers]


whole = llm().chat(MESSAGES)
pieces = list(llm().stream_chat(MESSAGES))


def judge(good: bool) -> str:
    """Return whether the text is good."""
    return str(good)


tools = [FunctionTool.from_defaults(judge)]
able = llm(is_function_calling_model=True, max_tokens=200)
asked = able.chat_with_tools(tools, "judge", tool_required=True, allow_parallel_tool_calls=False)
(call,) = able.get_tool_calls_from_response(asked)
plain = OpenAILike(model=MODEL, temperature=0, max_tokens=12, is_chat_model=False, **SERVER)
print(
    json.dumps(
        {
            "chat": whole.message.content,
            "stream": "".join(it.delta or "" for it in pieces),
            "usage": whole.raw.usage.completion_tokens,
            "several": asyncio.run(several()),
            "call": call.tool_kwargs,
            "completion": plain.complete("hi").text,
            "vector": OpenAILikeEmbedding(
                model_name=ENCODER,
                api_base=os.environ["ENCODER_URL"],
                api_key=os.environ["KEY"],
            ).get_text_embedding_batch(["the sea is blue", "cats sleep all day"])
            if ENCODER
            else None,
        }
    )
)
