"""Talks to the scripted model as a program with Anthropic's SDK would: a message, a stream, a tool, and errors.

Arguments: the server's address, its key, and `thinks` if each reply has to come back with what was thought.
The server's first answers are a rate limit, an overload, and a stream that ends with an error.
Prints `walked` at the end; a wrong shape is an exception.
"""

import json
import sys

import anthropic
from anthropic import types
from pydantic import TypeAdapter

address, key, *thinks = sys.argv[1:]
client = anthropic.Anthropic(base_url=address, api_key=key, max_retries=0, timeout=60)
stranger = anthropic.Anthropic(base_url=address, api_key="another", max_retries=0, timeout=60)
weather = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
request = {"model": "scripted", "max_tokens": 1000, "system": "You know the weather.", "tools": [weather]}
question = {"role": "user", "content": "What is the weather in Orléans?"}


def refused(error, kind, talk, by=client):
    """The error of a request, which has to be this one."""
    try:
        by.messages.create(**request, messages=talk)
    except error as refusal:
        assert refusal.type == kind and refusal.api_message, refusal.body
        return refusal
    raise AssertionError(f"expected {kind}")


def checked(shape, text):
    """Checks an answer against a type of the SDK, which takes anything for it."""
    TypeAdapter(shape).validate_json(text)


def facts(message):
    """What a reply consists of."""
    names = ["type", "text", "id", "name", "input", "thinking", "signature"]
    blocks = [[getattr(block, name, None) for name in names] for block in message.content]
    return message.id, message.role, message.model, message.stop_reason, message.usage.output_tokens, blocks


limited = refused(anthropic.RateLimitError, "rate_limit_error", [question])
assert limited.response.headers["retry-after"] == "7", limited.response.headers
refused(anthropic.OverloadedError, "overloaded_error", [question])
try:
    with client.messages.stream(**request, messages=[question]) as stream:
        stream.get_final_message()
    raise AssertionError("expected an error in the stream")
except anthropic.APIStatusError as error:
    assert error.type == "overloaded_error", error.body
refused(anthropic.AuthenticationError, "authentication_error", [question], by=stranger)
talk = [question, {"role": "assistant", "content": "It is"}]
refused(anthropic.BadRequestError, "invalid_request_error", talk)

# A message: text and a call, and before both what was thought.
answer = client.messages.with_raw_response.create(**request, messages=[question])
checked(types.Message, answer.text())
reply = answer.parse()
assert reply.stop_reason == "tool_use" and reply.usage.input_tokens + reply.usage.cache_read_input_tokens > 0, reply
expected = ["thinking"] if thinks else []
assert [block.type for block in reply.content] == expected + ["text", "tool_use"], reply
call = reply.content[-1]
assert reply.content[-2].text == "I look at the weather."
assert (call.name, call.input) == ("weather", {"city": "Orléans"}), call

# The same as a stream, put together by the SDK, and each event by itself.
with client.messages.stream(**request, messages=[question]) as stream:
    said = "".join(stream.text_stream)
    whole = stream.get_final_message()
assert said == "I look at the weather." and facts(whole) == facts(reply), (facts(whole), facts(reply))
with client.messages.with_streaming_response.create(**request, messages=[question], stream=True) as answer:
    lines = [line for line in answer.iter_lines() if line]
names = []
for name, data in zip(lines[::2], lines[1::2], strict=True):
    name, data = name.removeprefix("event: "), data.removeprefix("data: ")
    assert json.loads(data)["type"] == name, (name, data)
    names.append(name)
    if name != "ping":
        checked(types.RawMessageStreamEvent, data)
assert (names[0], names[-1]) == ("message_start", "message_stop"), names

# The tool's result, as a text and in blocks; the second reply ends the turn.
for result in ["Sunny.", [{"type": "text", "text": "Sun"}, {"type": "text", "text": "ny."}]]:
    result = {"type": "tool_result", "tool_use_id": call.id, "content": result}
    talk = [question, {"role": "assistant", "content": reply.content}, {"role": "user", "content": [result]}]
    ended = client.messages.create(**request, messages=talk)
    assert ended.stop_reason == "end_turn" and ended.content[-1].text == "Sunny.", ended
unanswered = [*talk[:2], {"role": "user", "content": "And tomorrow?"}]
refused(anthropic.BadRequestError, "invalid_request_error", unanswered)
if thinks:
    talk[1] = {"role": "assistant", "content": reply.content[1:]}
    refused(anthropic.BadRequestError, "invalid_request_error", talk)
print("walked")
