"""Reading of the official tools' files, and the records kept of them; the files in `official/` are real ones."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import pytest

from shelf.suites.bfcl_v4 import run
from shelf.suites.bfcl_v4.categories import CATEGORIES, Chain, Item, expand, missing_need
from shelf.suites.bfcl_v4.results import Generated, cause_of, error_of, read_official, read_verdicts, tokens
from shelf.suites.records import Fault
from shelf.suites.tau2.results import Key, Sides, Simulations, read_faults, read_simulations, record_of

OFFICIAL = Path(__file__).with_name("official")
SIMPLE = OFFICIAL / "BFCL_v4_simple_python_result.json"
AGENT = "openai/scripted"


@pytest.fixture
def results(tmp_path):
    """The tool's folder of results with the answers of eight items, two of them technical failures."""
    folder = tmp_path / "official" / "result"
    place = folder / "Qwen_Qwen3-8B-FC" / "non_live"
    place.mkdir(parents=True)
    shutil.copy(SIMPLE, place)
    return folder


def items(count=8):
    return [Item("simple_python", f"simple_python_{number}", f"simple_python_{number}") for number in range(count)]


def entries(path):
    return {entry["id"]: entry for entry in map(json.loads, path.read_text().splitlines())}


def test_an_answer_that_is_a_technical_failure_is_told_from_a_wrong_one():
    found = {name: error_of(entry) for name, entry in entries(SIMPLE).items()}
    assert {name for name, error in found.items() if error} == {"simple_python_3", "simple_python_5"}
    assert found["simple_python_5"] == ("endpoint_internal_server", "Error code: 503 - overloaded", True)
    assert found["simple_python_3"][::2] == ("endpoint_protocol", True)  # a page in HTML instead of a completion


def test_what_the_model_itself_caused_stays_its_failure():
    (malformed,) = map(error_of, entries(OFFICIAL / "BFCL_v4_multi_turn_base_result.json").values())
    assert (malformed.cause, malformed.technical) == ("malformed_call", False)
    said = "Error code: 400 - {'message': \"This model's maximum context length is 2048 tokens.\"}"
    too_long = {"result": f"Error during inference: {said}", "traceback": f"openai.BadRequestError: {said}\n"}
    assert error_of(too_long)[::2] == ("context", False)
    refused = {"result": "Error during inference: no key", "traceback": "openai.AuthenticationError: no key\n"}
    assert error_of(refused)[::2] == ("endpoint_authentication", True)


def test_tokens_are_counted_over_turns():
    (first, *_) = entries(SIMPLE).values()
    assert tokens(first) == (100, 10)
    assert tokens({"input_token_count": [[3, 4], [5]], "output_token_count": [[1], []]}) == (12, 1)


def test_official_verdicts_are_read_and_must_cover_the_items(tmp_path):
    ids = [f"simple_python_{number}" for number in range(16) if number % 8 != 5]
    verdicts = read_verdicts(OFFICIAL, "simple_python", ids)
    assert {name for name, right in verdicts.items() if not right} == {
        f"simple_python_{number}" for number in (1, 6, 9, 14)
    }
    with pytest.raises(ValueError, match="of 14 items right"):
        read_verdicts(OFFICIAL, "simple_python", ids[1:])
    with pytest.raises(ValueError, match="wrote no score of parallel"):
        read_verdicts(OFFICIAL, "parallel", ids)


def test_official_verdicts_are_read_whatever_the_model_answered(tmp_path):
    """The official tool writes answers as they are, with the ends of lines that JSON allows within a text."""
    head = {"accuracy": 0.5, "correct_count": 1, "total_count": 2}
    wrong = {"id": "simple_python_1", "valid": False, "model_result": "one\u2028two\x85three"}
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (head, wrong))
    (tmp_path / "BFCL_v4_simple_python_score.json").write_text(text, encoding="utf-8")
    ids = ["simple_python_0", "simple_python_1"]
    assert read_verdicts(tmp_path, "simple_python", ids) == {"simple_python_0": True, "simple_python_1": False}


def test_an_official_figure_needs_all_of_its_categories():
    assert read_official(OFFICIAL, ()) == {}
    everything = read_official(OFFICIAL, set(CATEGORIES))
    assert 0 < everything["Overall Acc"] < 1
    assert "Overall Acc" not in read_official(OFFICIAL, set(CATEGORIES) - {"web_search_base"})
    assert set(read_official(OFFICIAL, {"irrelevance", "live_irrelevance"})) == {"Irrelevance Detection"}


def test_answers_are_kept_and_technical_failures_are_asked_again(results, tmp_path):
    generated = Generated(tmp_path, results, items(), ())
    assert generated.missing == ["simple_python_3", "simple_python_5"]
    generated.prepare()
    path = next(results.rglob("*_result.json"))
    assert {"simple_python_3", "simple_python_5"}.isdisjoint(entries(path)) and len(entries(path)) == 6
    answered = entries(SIMPLE)["simple_python_0"] | {"id": "simple_python_3"}
    with path.open("a") as stream:
        stream.write(json.dumps(answered) + '\n{"id": "simple_python_5", "resu')
    assert generated.collect() == 7
    assert generated.missing == ["simple_python_5"]
    assert cause_of(items()[5], generated).cause == "endpoint_internal_server"


def test_the_tool_scores_no_more_than_is_asked_for(results, tmp_path):
    Generated(tmp_path, results, items(), ())
    fewer = Generated(tmp_path, results, items()[:2], ())
    fewer.prepare()
    assert len(entries(next(results.rglob("*_result.json")))) == 2
    again = Generated(tmp_path, results, items(), ())
    again.prepare()
    assert len(entries(next(results.rglob("*_result.json")))) == 6


def test_an_interruption_while_the_tool_rewrites_its_file_loses_nothing(results, tmp_path):
    before = Generated(tmp_path, results, items(), ())
    path = next(results.rglob("*_result.json"))
    path.write_text("")  # cut right after it was opened
    with (tmp_path / "generated.jsonl").open("a") as stream:
        stream.write('{"file": "half')
    after = Generated(tmp_path, results, items(), ())
    assert after.entries == before.entries and len(after.entries) == 6
    after.prepare()
    assert len(entries(path)) == 6


def test_questions_about_a_memory_that_was_not_filled_are_asked_again(tmp_path):
    results = tmp_path / "official" / "result"
    chain = Chain("memory_kv", "student", ("memory_kv_prereq_0-student-0", "memory_kv_prereq_1-student-1"))
    question = Item("memory_kv", "memory_kv_0-student-0", "memory-student")
    folder = results / "M" / "agentic" / "memory" / "kv"
    snapshot = folder / "memory_snapshot" / "student_final.json"
    snapshot.parent.mkdir(parents=True)
    snapshot.write_text("{}")

    def write(*answers):
        for identity, result in answers:
            name = "memory_kv_prereq" if "prereq" in identity else "memory_kv"
            with (folder / f"BFCL_v4_{name}_result.json").open("a") as stream:
                stream.write(json.dumps({"id": identity, "result": result, "traceback": "x.TimeoutError: y"}) + "\n")

    write((chain.ids[0], [["ok"]]), (chain.ids[1], "Error during inference: y"), (question.id, [["asked"]]))
    generated = Generated(tmp_path, results, [question], [chain])
    generated.prepare()
    assert generated.missing == [*chain.ids, question.id]
    assert cause_of(question, generated).cause == "memory_prerequisite"
    elsewhere = Item("memory_kv", "memory_kv_5-customer-0", "memory-customer")  # what fills its memory has not failed
    assert cause_of(elsewhere, generated).cause == "not_generated"
    write((chain.ids[0], [["ok"]]), (chain.ids[1], [["ok"]]))
    generated.collect()
    generated.prepare()
    assert generated.missing == [question.id]
    snapshot.unlink()
    generated.prepare()
    assert generated.missing == [*chain.ids, question.id]


def test_categories_are_named_by_themselves_or_in_groups(monkeypatch):
    assert expand(["all"]) == CATEGORIES
    assert expand(["memory_kv", "web_search", "simple_java"])[0] == "simple_java"
    with pytest.raises(ValueError, match="Unknown category 'simple'"):
        expand(["simple"])
    monkeypatch.delenv("SERPAPI_API_KEY", raising=False)
    assert "set SERPAPI_API_KEY" in missing_need("web_search_base")
    monkeypatch.setenv("SERPAPI_API_KEY", "x")
    assert missing_need("web_search_base") is None


def test_the_sentence_model_lies_where_the_tool_looks_for_it_and_another_one_is_refused(monkeypatch, tmp_path):
    assert missing_need("memory_vector") is None
    folder, place = tmp_path / "model", tmp_path / "all-MiniLM-L6-v2"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    with pytest.raises(ValueError, match="is not the all-MiniLM-L6-v2 that this version knows"):
        run.link_embeddings(folder, place)
    monkeypatch.setattr(run, "EMBEDDINGS_SHA256", sha256(b"weights").hexdigest())
    for _ in range(2):
        run.link_embeddings(folder, place)
    assert (place / "model.safetensors").read_bytes() == b"weights"


# tau2


def airline(log=None, user=AGENT, user_calls_tools=False):
    text = (OFFICIAL / "tau2_airline.log").read_text() if log is None else log
    faults = read_faults(text, Sides(AGENT, user, user_calls_tools))
    found = read_simulations(OFFICIAL / "tau2_airline.json")
    return {each["task_id"]: record_of("airline", 0, each, faults.get(each["task_id"])) for each in found}


def test_simulations_are_read_with_their_verdicts_and_tokens():
    records = airline()
    assert sorted(name for name, record in records.items() if record.passed) == ["0", "1", "2", "3", "4", "7"]
    assert records["0"].stop == "user_stop" and records["0"].output_tokens % 10 == 0 and records["0"].output_tokens
    assert {record.cluster for record in records.values()} == {f"airline-{name}" for name in range(8)}


def test_an_endpoint_that_fails_is_no_wrong_answer_and_an_unreadable_call_is_one():
    records = airline()
    assert records["5"].infra == "endpoint_service_unavailable"
    assert (records["6"].infra, records["6"].stop, records["6"].score) == (None, "agent_error", 0.0)


def test_the_simulated_users_failures_are_told_from_the_agents():
    log = (OFFICIAL / "tau2_airline.log").read_text().replace("[openai/scripted] Error", "[openai/user] Error")
    assert airline(log, user="openai/user")["5"].infra == "simulator_service_unavailable"
    assert airline(user_calls_tools=True)["6"].infra == "unreadable_call"  # either side may have written it
    error = record_of("airline", 0, {**_simulation(), "termination_reason": "user_error"}, None)
    assert error.infra == "simulator_protocol"
    said = [{"role": "user", "content": "###OUT-OF-SCOPE###"}]
    assert record_of("airline", 0, {**_simulation(), "messages": said}, None).stop == "user_out_of_scope"


def test_a_context_that_is_too_short_is_the_models_limit():
    line = "[openai/scripted] Error during generation: litellm.ContextWindowExceededError: too long\n"
    log = line + "Error running task 5, trial 0: litellm.ContextWindowExceededError: too long\n"
    assert read_faults(log, Sides(AGENT, "openai/user"))["5"] == Fault(
        "context", "litellm.ContextWindowExceededError: too long", technical=False
    )
    assert read_faults(log, Sides(AGENT, AGENT))["5"].technical  # whose context it was is unknown


def test_text_in_solo_mode_is_the_agents_failure():
    faults = read_faults((OFFICIAL / "tau2_solo.log").read_text(), Sides(AGENT, None))
    assert [fault.technical for fault in faults.values()] == [False]


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 1.0])
def test_a_file_that_the_tool_is_writing_gives_its_complete_simulations(tmp_path, share):
    text = (OFFICIAL / "tau2_airline.json").read_text()
    (tmp_path / "r.json").write_text(text[: int(share * len(text))])
    found = read_simulations(tmp_path / "r.json")
    assert found == read_simulations(OFFICIAL / "tau2_airline.json")[: len(found)]
    assert (len(found) == 8) == (share == 1.0)


def test_finished_simulations_outlive_an_interruption(tmp_path):
    simulations = read_simulations(OFFICIAL / "tau2_airline.json")
    faults = read_faults((OFFICIAL / "tau2_airline.log").read_text(), Sides(AGENT, AGENT))
    kept = Simulations(tmp_path)
    kept.add("airline", 0, simulations[:4], faults)
    kept.add("airline", 0, simulations, faults)
    assert (len(kept.records), len(kept.faults)) == (7, 1)
    with (tmp_path / "simulations.jsonl").open("a") as stream:
        stream.write('{"record": {')
    again = Simulations(tmp_path)
    assert again.records == kept.records and len(again.records) == 7
    assert Key("airline", "5", 0) not in again.records


def _simulation():
    return next(each for each in read_simulations(OFFICIAL / "tau2_airline.json") if each["task_id"] == "0")
