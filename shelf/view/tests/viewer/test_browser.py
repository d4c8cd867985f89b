"""Every page in a real browser, on whole, old, damaged, empty, hostile, long and growing logs."""

import gzip
import json
import random
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from seal.training.closed_loop import ClosedLoop
from seal.training.log import RunLog
from shelf.statistics.log import read_validation_dir
from shelf.view.app import make_app
from shelf.view.export import write_page
from shelf.view.runs import find_runs
from shelf.view.tests.report.sample_run import write_run as write_older_run
from shelf.view.tests.viewer.chromium import Page, chromium, find_chromium
from shelf.view.tests.viewer.conftest import served
from shelf.view.tests.viewer.played_run import play_step, settings
from shelf.view.viewed import Viewed

PROGRAM = find_chromium()
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="no Chromium: apt-get install chromium, or set SEAL_TEST_CHROMIUM"),
]

AXE = gzip.decompress((Path(__file__).parent / "vendor/axe.min.js.gz").read_bytes()).decode()
GROUP = "#/group?run=played_s0&step={step}&source={source}&task={task}"
PAGES = {
    "overview": ("#/overview", "Training reward"),
    "failures": ("#/failures", "What no cue reached"),
    "failures by tool": ("#/failures?by=tool&unit=share", "What improved"),
    "groups": ("#/groups", "groups"),
    "group": (GROUP, "differs from most"),
    "trajectories": ("#/trajectories", "144 trajectories"),
    "trajectory": ("#/trajectory?key=train:4:5", "State after this turn"),
    "lost trajectory": ("#/trajectory?key=train:2:1", "Infrastructure failed this rollout"),
    "validation": ("#/trajectory?key=validation:0:1", "choose nothing from it"),
    "cues": ("#/cues", "paired by task and validation"),
}


@pytest.fixture(scope="module")
def tab() -> Iterator[Page]:
    with chromium(PROGRAM) as page:
        yield page


@pytest.fixture
def page(tab) -> Iterator[Page]:
    """The tab, which must end the test without an error in its console."""
    tab.problems.clear()
    tab.size(1280, 860)
    yield tab
    # A test's server ends before its page does, which then asks once more.
    assert [each for each in tab.problems if "ERR_CONNECTION_REFUSED" not in each] == []


@pytest.fixture(scope="module")
def address(played) -> Iterator[str]:
    with served(make_app(find_runs([str(played)], Path()))) as found:
        yield found


def at(address: str, name: str, played: Path) -> str:
    line = json.loads((played / "seal_log/trajectories/4.jsonl").read_text().splitlines()[4])
    fragment = PAGES[name][0].format(step=4, source=line["data_source"], task=line["task_id"])
    return f"{address}/{fragment}"


def settled(page: Page) -> None:
    page.wait("document.querySelector('main') && !document.querySelector('[aria-busy=true]')", "the loaded page")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [1280, 400])
def test_a_page_shows_its_content_and_is_accessible(page, address, played, name, width):
    for dark in (False, True):
        page.size(width, 860, dark)
        page.open(at(address, name, played))
        page.see(PAGES[name][1])
        settled(page)
        assert page.run("document.documentElement.dataset.theme") == ("dark" if dark else "light")
        assert page.run("document.documentElement.scrollWidth") <= width, "the page is wider than the window"
        page.send("Runtime.evaluate", expression=AXE)
        found = page.run("axe.run(document, {resultTypes: ['violations']}).then((r) => r.violations)")
        serious = [
            f"{each['id']}: {each['help']}: {[node['html'][:120] for node in each['nodes'][:3]]}"
            for each in found
            if each["impact"] in ("serious", "critical")
        ]
        assert serious == []


def test_a_state_table_shows_all_its_columns_on_a_telephone(page, address, played):
    page.size(420, 860)
    page.open(at(address, "trajectory", played))
    page.see("State after this turn")
    settled(page)
    boxes = (
        "[...document.querySelectorAll('.state')].map((each) => (each.open = true) && each.querySelector('.scroll'))"
    )
    assert page.run(f"{boxes}.filter(Boolean).map((each) => each.scrollWidth - each.clientWidth)") == [0]
    assert page.run("[...document.querySelectorAll('.diff td')].every((each) => each.clientWidth > 50)")


def test_a_cell_leads_to_its_trajectories_and_from_there_to_one(page, address):
    page.open(f"{address}/#/failures?by=category")
    page.wait("document.querySelector('.matrix td a')")
    wanted = page.run("document.querySelector('.matrix td a').title")
    turns = int(re.search(r": (\d+) of", wanted)[1])
    page.click(".matrix td a")
    page.wait("document.querySelector('.space .row a')")
    total = int(page.run("document.querySelector('.rows').dataset.total"))
    assert 0 < total <= turns  # a trajectory may have several such turns
    label = wanted.split(",")[0]
    rows = page.run("[...document.querySelectorAll('.space .row .labels')].map((each) => each.innerText)")
    assert rows and all(label in text or "+" in text for text in rows)
    page.click(".space .row a")
    page.see("Copy replay command")
    settled(page)
    assert label in page.text()
    page.run("history.back()")
    page.wait("document.querySelector('.space .row a')")
    assert int(page.run("document.querySelector('.rows').dataset.total")) == total


def test_filters_live_in_the_address(page, address):
    page.open(f"{address}/#/trajectories")
    page.see("144 trajectories")
    page.run(
        "(() => { const field = [...document.querySelectorAll('.filters select')].find((each) => "
        "[...each.options].some((option) => option.value === 'passed')); field.value = 'passed'; "
        "field.dispatchEvent(new Event('change', {bubbles: true})); })()"
    )
    page.wait("location.hash.includes('outcome=passed')")
    page.wait("Number(document.querySelector('.rows').dataset.total) < 144 && document.querySelector('.space .row a')")
    total, link = page.run("[document.querySelector('.rows').dataset.total, location.href]")
    assert page.run("[...document.querySelectorAll('.space .mark')].every((each) => each.innerText === '1')")
    page.open(link)
    page.wait(f"document.querySelector('.rows')?.dataset.total === {json.dumps(total)}")
    page.click(".filters .clear")
    page.see("144 trajectories")


def test_keys_move_through_pages_rows_and_rollouts(page, address):
    page.open(f"{address}/#/overview")
    page.see("Training reward")
    page.press("4")
    page.see("144 trajectories")
    page.wait("document.querySelector('.space .row a')")
    for _ in range(3):
        page.press("j")
    page.press("k")
    page.wait("document.querySelectorAll('.space .row')[1].classList.contains('chosen')")
    page.press("Enter")
    page.see("Copy replay command")
    key = page.run("new URLSearchParams(location.hash.split('?')[1]).get('key')")
    assert key == "train:6:2"
    page.wait("[...document.querySelectorAll('.crumbs button')].some((each) => !each.disabled)")
    page.press("j")
    page.wait("location.hash.includes('train%3A6%3A3')")
    page.wait("document.querySelector('.siblings .here')?.innerText === '2'")
    page.press("]")
    page.wait("location.hash.includes('train%3A6%3A4')")
    page.wait("document.querySelector('.siblings .here')?.innerText === '3'")
    page.press("g")
    page.see("differs from most")
    page.press("?")
    page.wait("document.querySelector('dialog').open")
    page.press("Escape")
    page.wait("!document.querySelector('dialog').open")
    page.press("4")
    page.wait("document.querySelector('input.long')")
    page.press("/")
    page.wait("document.activeElement === document.querySelector('input.long')")
    page.press("t")  # typed, not the theme
    page.wait("location.hash.includes('text=t')")
    page.press("Escape")
    before = page.run("document.documentElement.dataset.theme")
    page.press("t")
    page.wait(f"document.documentElement.dataset.theme !== {json.dumps(before)}")
    page.run("localStorage.clear()")


def test_the_whole_trajectory_is_on_its_page(page, address, played):
    line = json.loads((played / "seal_log/trajectories/4.jsonl").read_text().splitlines()[4])
    page.open(f"{address}/#/trajectory?key=train:4:5")
    page.see("State after this turn")
    settled(page)
    shown = page.run("document.querySelector('main').textContent")  # also what a click unfolds
    for message in [*line["input"][1:], *line["output"]]:
        assert " ".join(message["content"][:200].split()) in " ".join(shown.split())
    for found in line["diagnosis"]:
        assert found["reason"] in shown and found["rule"] in shown
    command = page.run("[...document.querySelectorAll('.toolbar button')].map((each) => each.title)")
    assert f"seal view {played} --replay train:4:5" in command


def test_the_page_of_omega_shows_what_the_interface_gives(page, address, run):
    page.open(f"{address}/#/cues")
    page.wait("document.querySelector('.lifts tbody tr')")
    row = page.run("document.querySelector('.lifts tbody').innerText")
    whole = Viewed(find_runs([str(run)], Path())[0]).omega()["lift"]["overall"]
    assert f"+{100 * whole['lift']:.1f}" in row and row.startswith(str(whole["pairs"]))
    shutil.rmtree(run / "seal_log/withdrawal")
    with served(make_app(find_runs([str(run)], Path()))) as other:
        page.open(f"{other}/#/cues")
        page.see("Not measured in this run")
        assert not page.run("document.querySelectorAll('.lifts').length")


def test_what_the_cues_added_is_marked(page, address, played):
    for step in range(6, 0, -1):
        lines = (played / f"seal_log/trajectories/{step}.jsonl").read_text().splitlines()
        for number, text in enumerate(lines, 1):
            line = json.loads(text)
            if line["omega_version"] and line["errors"]:
                page.open(f"{address}/#/trajectory?key=train:{step}:{number}")
                page.see("State after this turn")
                settled(page)
                if page.run("document.querySelectorAll('mark').length"):
                    marks = page.run("[...document.querySelectorAll('mark')].map((each) => each.innerText.trim())")
                    said = json.dumps([*line["input"], *line["output"]])
                    assert all(json.dumps(mark)[1:-1] in said for mark in marks)
                    return
    raise AssertionError("no trajectory has a mark")


def test_a_running_run_is_followed(page, run):
    log, loop = RunLog(run), ClosedLoop(settings())
    with served(make_app(find_runs([str(run)], Path()))) as address:
        page.open(f"{address}/#/overview")
        page.see("Training reward")
        page.wait("document.querySelector('[aria-label^=\"Training reward. Step 6:\"]')")
        log.stage("train", step=7, of=9)
        play_step(log, loop, 7, random.Random(5))
        page.wait("document.querySelector('[aria-label^=\"Training reward. Step 7:\"]')", "the new step")
        page.see("step 7 of 9 done")
        page.open(f"{address}/#/trajectories")
        page.see("168 trajectories")
        play_step(log, loop, 8, random.Random(6))
        page.see("192 trajectories")


def test_several_runs_are_overlaid(page, played, tmp_path):
    for name in ("seal_s0", "seal_s1", "vanilla"):
        shutil.copytree(played, tmp_path / name, ignore=shutil.ignore_patterns("view_index*"))
    with served(make_app(find_runs([], tmp_path))) as address:
        page.open(address)
        page.see("seal (2 seeds)")
        page.run(
            "[...document.querySelectorAll('.overlay button')].find((each) => each.innerText === 'vanilla').click()"
        )
        page.wait("location.hash.includes('runs=seal_s0%7Cseal_s1')")
        page.wait("![...document.querySelectorAll('.legend')].some((each) => each.innerText.includes('vanilla'))")


HOSTILE = [
    "<script>window.hurt = 1</script>",
    "<img src=x onerror='window.hurt = 1'>",
    "</script><script>window.hurt = 1</script>",
    "</pre></main><iframe srcdoc='<script>top.hurt = 1</script>'></iframe>",
    "javascript:window.hurt=1",
    "<!--<script>window.hurt = 1",
    '"><svg onload=window.hurt=1>',
    "\u202egnp.exe \u0000 \u2028 \ud83d\ude00",
]


def hostile(run: Path) -> Path:
    """A run whose every text tries to become a script."""
    text = " ".join(HOSTILE)

    def spoiled(value):
        if isinstance(value, dict):
            return {key: value[key] if key in KEPT else spoiled(value[key]) for key in value}
        if isinstance(value, list):
            return [spoiled(each) for each in value]
        return f"{value} {text}" if isinstance(value, str) else value

    path = run / "seal_log/trajectories/3.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for name in ("output", "evidence", "infra_message", "stop"):
            line[name] = spoiled(line[name])
        for turn in line["diagnosis"]:
            turn["reason"] = spoiled(turn["reason"])
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


KEPT = {"role", "error", "stop", "kind", "blame"}


def test_the_text_of_a_model_is_never_interpreted(page, run, tmp_path):
    hostile(run)
    runs = find_runs([str(run)], Path())
    line = json.loads((run / "seal_log/trajectories/3.jsonl").read_text().splitlines()[4])
    with served(make_app(runs)) as address:
        write_page(runs, tmp_path / "page.html", 200)
        exported = (tmp_path / "page.html").as_uri()
        for place, fragments in {
            address + "/": [
                "#/overview", "#/trajectories", "#/failures?by=tool", "#/groups", "#/trajectory?key=train:3:5",
                "#/trajectory?key=train:3:1", "#/cues?cue=<img src=x onerror=window.hurt=1>",
                "#/failures?tool=<script>", "#/<script>window.hurt=1</script>",
                f"#/group?step=3&source={line['data_source']}&task={line['task_id']}",
            ],
            exported: ["#/overview", "#/trajectories", "#/trajectory?key=train:3:5"],
        }.items():  # fmt: skip
            for fragment in fragments:
                page.open(place + fragment)
                settled(page)
                if "key=train:3:5" in fragment:
                    assert HOSTILE[0] in page.text() and HOSTILE[2] in page.text()
                assert page.run("window.hurt") is None
                assert page.run("document.querySelectorAll('main script, main img, iframe, main svg').length") == 0


@pytest.mark.parametrize("kind", ["older", "empty", "garbage", "no steps"])
def test_old_damaged_and_empty_runs_say_what_they_lack(page, run, tmp_path, kind):
    folder, says = tmp_path / "broken", "No training step is logged yet."
    if kind == "older":
        write_older_run(folder)
        says = "Training reward"
    elif kind == "no steps":
        folder = run
        (run / "seal_log/steps.jsonl").unlink()
    else:
        (folder / "seal_log/trajectories").mkdir(parents=True)
        if kind == "garbage":
            for name in ("steps.jsonl", "omega.jsonl", "stages.jsonl", "trajectories/1.jsonl"):
                (folder / "seal_log" / name).write_bytes(b'{"step": 1\n\xff\xfe\n[]\n{"step": "x"}\n')
            says = "8 lines of the logs cannot be used"
    with served(make_app(find_runs([str(folder)], Path()))) as address:
        page.open(f"{address}/#/overview")
        page.see(says)
        for name in ("failures", "groups", "trajectories", "cues"):
            page.open(f"{address}/#/{name}")
            settled(page)
            assert page.run("document.querySelector('main').innerText.trim().length") > 20
        assert "undefined" not in page.text() and "NaN" not in page.text()


def test_the_lists_of_a_run_that_trained_nothing_open_on_its_validations(page, run):
    shutil.rmtree(run / "seal_log")
    with served(make_app(find_runs([str(run)], Path()))) as address:
        page.open(f"{address}/#/trajectories")
        page.see(f"{len(read_validation_dir(run).lines)} trajectories")
        page.open(f"{address}/#/failures")
        page.wait("document.querySelector('.matrix td a')")


def test_an_exported_page_works_from_a_file_and_asks_for_nothing(page, played, tmp_path):
    write_page(find_runs([str(played)], Path()), tmp_path / "page.html", 20)
    shutil.move(tmp_path / "page.html", tmp_path / "moved.html")
    place = (tmp_path / "moved.html").as_uri()
    page.open("about:blank")
    page.requests.clear()
    page.open(place)
    page.see("Training reward")
    page.open(f"{place}#/failures")
    page.wait("document.querySelector('.matrix td a')")
    page.press("3")
    page.see("A sample of 20 of 144 trajectories")
    page.click(".space .row a")
    page.see("State after this turn")
    assert "Copy replay command" in page.text()
    page.open(f"{place}#/cues")
    page.see("Ω over the steps")
    assert {each for each in page.requests if not each.startswith(("file:", "data:", "about:"))} == set()


def test_a_long_list_keeps_few_rows_in_the_document(page, run):
    source = (run / "seal_log/trajectories/1.jsonl").read_text()
    for step in range(10, 110):
        (run / f"seal_log/trajectories/{step}.jsonl").write_text(source.replace('"step": 1,', f'"step": {step},'))
    with served(make_app(find_runs([str(run)], Path()))) as address:
        page.open(f"{address}/#/trajectories?order=old")
        page.wait("document.querySelector('.rows')?.dataset.total === '2544'")
        for part in (0.5, 1, 0.25):
            page.run(
                f"document.querySelector('.rows').scrollTop = {part} * document.querySelector('.space').offsetHeight"
            )
            page.wait(
                "(() => { const box = document.querySelector('.rows').getBoundingClientRect(); "
                "const rows = [...document.querySelectorAll('.space .row')].filter((each) => { "
                "const at = each.getBoundingClientRect(); return at.top < box.bottom && at.bottom > box.top; }); "
                "return rows.length > 15 && rows.every((each) => each.querySelector('a')); })()",
                "the rows in view",
            )
            assert page.run("document.querySelectorAll('.space .row').length") < 60


def test_a_token_opens_the_viewer_once_and_then_by_its_cookie(page, played):
    with served(make_app(find_runs([str(played)], Path()), host="0.0.0.0", token="s3cret")) as address:
        page.open(f"{address}/?token=s3cret")
        page.see("Training reward")
        assert page.run("location.search") == ""
        assert "s3cret" not in page.run("document.cookie")
        page.open(f"{address}/#/cues")
        page.see("Ω over the steps")
