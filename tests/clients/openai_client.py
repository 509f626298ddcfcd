"""Uses the package `openai` with a Keel server that serves models/tiny: openai_client.py URL"""
import asyncio
import json
import sys

import openai

url = sys.argv[1]
client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
story = "Once upon a time"


def completions():
    answer = client.completions.create(model="tiny", prompt=story, max_tokens=8, temperature=0)
    assert answer.choices[0].finish_reason == "length", answer
    assert answer.usage.completion_tokens == 8
    assert answer.usage.keel["policy"] == "none"
    pieces, finish = "", []
    for chunk in client.completions.create(model="tiny", prompt=story, max_tokens=8, temperature=0, stream=True):
        pieces += chunk.choices[0].text
        finish.append(chunk.choices[0].finish_reason)
    assert pieces == answer.choices[0].text, (pieces, answer.choices[0].text)
    assert finish[-1] == "length" and not any(finish[:-1])
    many = client.completions.create(model="tiny", prompt=[story, "The dog"], n=2, max_tokens=4, seed=5)
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    again = client.completions.create(model="tiny", prompt=[story, "The dog"], n=2, max_tokens=4, seed=5)
    assert [c.text for c in many.choices] == [c.text for c in again.choices]


def logprobs():
    answer = client.completions.create(model="tiny", prompt=story, max_tokens=3, logprobs=2, echo=True, temperature=0)
    found = answer.choices[0].logprobs
    text = answer.choices[0].text
    assert text.startswith(story)
    assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
    assert len(found.tokens) == answer.usage.prompt_tokens + 3
    for i, (token, offset) in enumerate(zip(found.tokens, found.text_offset)):
        if i > 0:
            assert token == "<|begin_of_text|>" or text[offset:offset + len(token)] == token, (token, offset)
            assert found.token_logprobs[i] <= 0
    # the greedy tokens are the most likely ones, with the same number
    for value, top in list(zip(found.token_logprobs, found.top_logprobs))[-3:]:
        assert value == max(top.values())


def chats():
    messages = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell me a story."}]
    answer = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=6, temperature=0, logprobs=True, top_logprobs=2)
    message = answer.choices[0].message
    assert message.role == "assistant"
    entries = answer.choices[0].logprobs.content
    assert b"".join(bytes(e.bytes) for e in entries).decode() == message.content
    text, usage = "", None
    stream = client.chat.completions.create(
        model="tiny", messages=messages, max_tokens=6, temperature=0, stream=True, n=2,
        stream_options={"include_usage": True})
    for chunk in stream:
        if chunk.usage:
            usage = chunk.usage
        elif chunk.choices[0].index == 0:
            text += chunk.choices[0].delta.content or ""
    assert text == message.content, (text, message.content)
    assert usage.completion_tokens == 12
    # the helper that adds the parts of a stream; it refuses texts that max_tokens has cut
    word = message.content.split()[-1]
    with client.chat.completions.stream(
            model="tiny", messages=messages, max_tokens=50, temperature=0, n=2, stop=word) as parts:
        for _ in parts:
            pass
        whole = parts.get_final_completion()
    assert [c.message.content for c in whole.choices] == [message.content.split(word)[0]] * 2
    assert [c.finish_reason for c in whole.choices] == ["stop"] * 2
    assert whole.choices[0].message.role == "assistant"


def policies():
    answer = client.completions.create(
        model="tiny", prompt=story * 20, max_tokens=30, temperature=0,
        extra_body={"keel": {"policy": "sliding_window", "budget": 32}})
    used = answer.usage.keel
    assert used["policy"] == "sliding_window" and used["evicted_tokens"] > 0, used
    alias = client.completions.create(model="tiny@window", prompt=story * 20, max_tokens=30, temperature=0)
    assert alias.choices[0].text == answer.choices[0].text
    header = client.completions.create(
        model="tiny", prompt=story * 20, max_tokens=30, temperature=0,
        extra_headers={"X-Keel-Policy": json.dumps({"policy": "sliding_window", "budget": 32})})
    assert header.choices[0].text == answer.choices[0].text
    assert {m.id for m in client.models.list()} == {"tiny", "tiny@window"}


def refused(error, **fields):
    try:
        client.chat.completions.create(**{"model": "tiny", "messages": [{"role": "user", "content": "a"}], **fields})
    except error as e:
        assert e.request_id and isinstance(e.body["message"], str), e
        return e
    raise AssertionError(f"{fields} was accepted")


def errors():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    assert refused(openai.BadRequestError, tools=[tool]).param == "tools"
    assert refused(openai.BadRequestError, response_format={"type": "json_object"}).param == "response_format"
    assert refused(openai.BadRequestError, temperature=-1).param == "temperature"
    assert refused(openai.NotFoundError, model="gpt-4").code == "model_not_found"
    assert refused(openai.BadRequestError, extra_body={"keel": {"policy": "no_such_policy"}}).param == "keel.policy"


async def together():
    many = openai.AsyncOpenAI(base_url=url, api_key="none")  # without /v1
    alone = client.completions.create(model="tiny", prompt=story, max_tokens=40, temperature=0).choices[0].text
    answers = await asyncio.gather(*[
        many.completions.create(model="tiny", prompt=story, max_tokens=40, temperature=0) for _ in range(12)])
    assert all(a.choices[0].text == alone for a in answers), "the load changed a text"
    # a client that stops to read cancels its request
    stream = await many.completions.create(
        model="tiny", prompt=story, max_tokens=1500, stream=True, extra_body={"ignore_eos": True})
    async for _ in stream:
        break
    await stream.close()


for test in (completions, logprobs, chats, policies, errors):
    test()
asyncio.run(together())
