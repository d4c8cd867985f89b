"""The scored categories of BFCL V4: their items, what each needs, and the official groups."""

import json
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

NON_LIVE = (
    *("simple_python", "simple_java", "simple_javascript"),
    *("multiple", "parallel", "parallel_multiple", "irrelevance"),
)
LIVE = (
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
    *("live_irrelevance", "live_relevance"),
)
MULTI_TURN = ("multi_turn_base", "multi_turn_miss_func", "multi_turn_miss_param", "multi_turn_long_context")
VECTOR = "memory_vector"
MEMORY = ("memory_kv", "memory_rec_sum", VECTOR)
WEB_SEARCH = ("web_search_base", "web_search_no_snippet")
CATEGORIES = NON_LIVE + LIVE + MULTI_TURN + MEMORY + WEB_SEARCH
"""Everything that the official overall score needs."""

GROUPS = {
    "non_live": NON_LIVE,
    "live": LIVE,
    "single_turn": NON_LIVE + LIVE,
    "multi_turn": MULTI_TURN,
    "memory": MEMORY,
    "web_search": WEB_SEARCH,
    "agentic": MEMORY + WEB_SEARCH,
    "all": CATEGORIES,
}
"""Names that --categories accepts besides single categories."""

IRRELEVANCE = ("irrelevance", "live_irrelevance")
OFFICIAL_COLUMNS = {
    "Non-Live AST Acc": tuple(name for name in NON_LIVE if name != "irrelevance"),
    "Live Acc": LIVE[:4],
    "Irrelevance Detection": IRRELEVANCE,
    "Multi Turn Acc": MULTI_TURN,
    "Memory Acc": MEMORY,
    "Web Search Acc": WEB_SEARCH,
    "Overall Acc": CATEGORIES,
}
"""Columns of the official table and the categories that each needs: the tool counts a missing category as 0."""

SERPAPI_KEY = "SERPAPI_API_KEY"


class Item(NamedTuple):
    """An item of a category. cluster: the key that its attempts share with those of related items."""

    category: str
    id: str
    cluster: str


class Chain(NamedTuple):
    """The dialogues that fill the memory of a scenario, in their order; its questions depend on all of them."""

    category: str
    scenario: str
    ids: tuple[str, ...]


def expand(names: Iterable[str]) -> tuple[str, ...]:
    """The categories of single names and groups, in the order of every table; ValueError for an unknown name."""
    chosen: set[str] = set()
    for name in names:
        if name not in GROUPS and name not in CATEGORIES:
            raise ValueError(f"Unknown category {name!r}: expected one of {', '.join((*GROUPS, *CATEGORIES))}.")
        chosen.update(GROUPS.get(name, (name,)))
    return tuple(name for name in CATEGORIES if name in chosen)


def missing_need(category: str) -> str | None:
    """One sentence about what a category lacks here, and how to provide it; None if it can run."""
    if category in WEB_SEARCH and not os.environ.get(SERPAPI_KEY):
        return f"needs a SerpAPI key and the internet: set {SERPAPI_KEY}"
    return None


def read_items(data: Path, category: str, limit: int | None = None) -> list[Item]:
    """The items of a category in the order of the tool's `data` folder, at most `limit` of them."""
    name, cluster_of = _file(category)
    lines = (data / f"BFCL_v4_{name}.json").read_bytes().splitlines()
    found = []
    for line in lines[:limit]:
        identity = json.loads(line)["id"]
        item = identity.replace(name, category, 1)
        found.append(Item(category, item, cluster_of(identity)))
    return found


def read_chains(data: Path, category: str) -> list[Chain]:
    """The preparatory dialogues of a memory category, one chain for each scenario."""
    chains = []
    for path in sorted((data / "memory_prereq_conversation").glob("memory_*.json")):
        entries = [json.loads(line)["id"] for line in path.read_bytes().splitlines() if line.strip()]
        ids = tuple(identity.replace("memory", category, 1) for identity in entries)
        chains.append(Chain(category, path.stem.removeprefix("memory_"), ids))
    return chains


def scenario_of(item: str) -> str:
    """The scenario of a memory item: that of ``memory_kv_0-customer-0`` is customer."""
    return item.rsplit("-", 2)[1]


def chains_for(chains: Sequence[Chain], items: Iterable[Item]) -> list[Chain]:
    """The chains on which some items depend."""
    scenarios = {scenario_of(item.id) for item in items}
    return [chain for chain in chains if chain.scenario in scenarios]


def _file(category: str) -> tuple[str, Callable[[str], str]]:
    """The name of a category's question file, and the function from an id in it to the cluster."""
    if category in MEMORY:
        return "memory", lambda identity: f"memory-{scenario_of(identity)}"
    if category in WEB_SEARCH:
        return "web_search", str
    if category in MULTI_TURN:  # the scenario, as in our own suite
        return category, lambda identity: f"scenario_{re.sub(r'.*_', '', identity)}"
    return category, str
