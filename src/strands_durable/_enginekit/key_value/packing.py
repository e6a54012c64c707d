"""The stored form of a batch: compressed JSON. Most batches are small, so what they have in common is a dictionary.

A dictionary must be kept for as long as there are batches that were written with it: a better one gets a number of its own.
"""

from __future__ import annotations

import json
import zlib

from ..._records.change_sets import ChangeSet

_SHAPE_1 = (
    rb'"agent":"","fingerprint":"","spec":"{\"name\":\"\",\"kind\":\"agent\",\"model_id\":\"\",\"system_prompt\":[{\"text\":\"'
    rb"\"}],\"tool_names\":[],\"tool_schemas\":{\"description\":\"\",\"inputSchema\":{\"json\":{\"properties\":{\"type\":"
    rb"\"string\"}},\"required\":[],\"type\":\"object\"}}},\"session_id\":null,\"nodes\":{},\"edges\":[],\"arguments\":{},"
    rb'\"version\":null}","given":"{\"invocation_state\":{},\"limits\":null}"'
    rb'"executions":[{"id":1,"execution_id":"","kind":"dispatched","status":"PENDING","run":0,"created_at":1,"updated_at":1,'
    rb'"fence":1,"beat":1,"owner":"{\"host\":\"\",\"boot_id\":\"\",\"pid_namespace\":\"pid:[4026531836]\",\"pid\":,\"started\":'
    rb'\"","lease_until":2}],"dispatches":[{"execution":1,"secrets":[{"name":"hash_key","value":"configs":[{"id":1,"digest":"'
    rb'"calls":[{"id":1,"execution":1,"run":0,"parent":0,"place":"","position":0,"kind":"agent","member":"default","scope":'
    rb'"default","lineage":1,"status":"RUNNING","attempt":1,"input":"","input_hash":"","base":"[]","config":1,"started_at":,'
    rb'"taken_up_at":,"ended_at":,"result":"{\"stop_reason\":\"end_turn\",\"message\":{\"tracking_id\":\"\",\"role\":'
    rb'\"assistant\",\"content\":[{\"text\":\"","status":"COMPLETED","status":"SUSPENDED","status":"FAILED"'
    rb'{"call":1,"part":"agent","data":"{\"conversation_manager_state\":{\"__name__\":\"SlidingWindowConversationManager\",'
    rb"\"removed_message_count\":0,\"model_call_count\":0},\"interrupt_state\":{\"interrupts\":{},\"context\":{},\"activated\":"
    rb'false},\"model_state\":{}}"},{"call":1,"part":"invocation","data":"{\"request_state\":{}}"}'
    rb'{"format":5,"tables":{"steps":[{"id":2,"call":1,"key":"000001/000:","attempt":1,"kind":"tool","name":"","title":"{\"\": '
    rb'\"\"}","status":"done","started_at":17,"ended_at":17,"result":"{\"result\":{\"toolUseId\":\"tooluse_\",\"status\":'
    rb'\"success\",\"content\":[{\"text\":\"\"}]},\"state\":{}}","number":2}],"messages":[{"lineage":1,"seq":2,"data":'
    rb'"{\"blocks\":[2],\"id\":\"\"}"}],"state":[{"call":1,"key":"\"\"","value":"[]"}],"heads":[{"call":1,"part":"progress",'
    rb'"data":"{\"phase\":\"model\",\"resume\":\"model\",\"ordinal\":1,\"attempt\":1,\"cycles\":[1],\"ranges\":[[0,2]]}"}]}}'
    rb'{"format":5,"tables":{"steps":[{"id":1,"call":1,"key":"000001/model~0","attempt":1,"kind":"model","name":"","title":"",'
    rb'"status":"done","config":1,"started_at":17,"ended_at":17,"usage":"{\"inputTokens\":,\"outputTokens\":,\"totalTokens\":}",'
    rb'"result":"{\"stop_reason\":\"tool_use\",\"message\":{\"tracking_id\":\"\",\"role\":\"assistant\",\"content\":[{\"toolUse\":'
    rb"{\"toolUseId\":\"tooluse_\",\"name\":\"\",\"input\":{\"\":\"\"}}}]},\"usage\":{\"inputTokens\":,\"outputTokens\":,"
    rb'\"totalTokens\":},\"metrics\":{\"latencyMs\":1}}","number":1,"loop":"{\"latencyMs\":1,\"leg\":0,\"cycle\":0}"},{"id":2,'
    rb'"call":1,"key":"000001/000:tooluse_~0","attempt":1,"kind":"tool","name":"","title":"","status":"started","started_at":17}],'
    rb'"messages":[{"lineage":1,"seq":1,"data":"{\"step\":1}"}],"heads":[{"call":1,"part":"progress","data":"{\"phase\":\"tools\",'
    rb'\"resume\":\"tools\",\"ordinal\":1,\"cycles\":[1],\"ranges\":[[0,1]]}"}]}}'
)
_DICTIONARIES = {b"1": _SHAPE_1}
"""By the first byte of a packed batch."""


def pack(changes: ChangeSet) -> bytes:
    """Return a change set in a small form."""
    text = json.dumps(changes, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogatepass")
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS, zdict=_SHAPE_1)
    return b"1" + packer.compress(text) + packer.flush()


def unpack(packed: bytes) -> ChangeSet:
    """Return the change set that was packed."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS, zdict=_DICTIONARIES[packed[:1]])
    text = unpacker.decompress(packed[1:]) + unpacker.flush()
    found: ChangeSet = json.loads(text.decode("utf-8", "surrogatepass"))
    return found
