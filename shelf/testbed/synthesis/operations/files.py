"""Operations of GorillaFileSystem."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from shelf.testbed.synthesis.operations.registry import Drawn, Run, add, calling, operation, whole
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "GorillaFileSystem"


def _here(stage: Stage) -> Mapping[str, Any]:
    return stage.simulator(CLASS)._current_dir.contents


def _is_file(item: Any) -> bool:
    return hasattr(item, "content")


def _folders(stage: Stage) -> list[str]:
    return [name for name, item in _here(stage).items() if not _is_file(item)]


def _file(stage: Stage, filled: bool = False) -> str | None:
    """A file of the current folder, often the one mentioned last. filled: only files with content."""
    names = [name for name, item in _here(stage).items() if _is_file(item) and (item.content or not filled)]
    last = stage.focus("file")
    return last if last in names and stage.values.chance(0.5) else stage.values.pick(names)


def _elsewhere(stage: Stage) -> tuple[str, str] | None:
    """Folder and name of a file one level below whose name is not in the current folder."""
    here = _here(stage)
    return stage.values.pick(
        [
            (folder, name)
            for folder in _folders(stage)
            for name, item in here[folder].contents.items()
            if _is_file(item) and item.content and name not in here
        ]
    )


def _name_elsewhere(stage: Stage) -> str | None:
    place = _elsewhere(stage)
    return place and place[1]


def _new_file(stage: Stage) -> str:
    return stage.values.file_name()


def _new_folder(stage: Stage) -> str:
    return stage.values.word()


def _folder(stage: Stage) -> str | None:
    return stage.values.pick(_folders(stage))


def _empty_folder(stage: Stage) -> str | None:
    return stage.values.pick([name for name in _folders(stage) if not _here(stage)[name].contents])


FILE = Drawn("f", _file, "name", "file")
WRITTEN = Drawn("f", partial(_file, filled=True), "name", "file")
"""A file with content."""

add("ls", CLASS, calling("ls"))
add("ls_a", CLASS, calling("ls", a=True), 0.5)
add("pwd", CLASS, calling("pwd"), 0.5)
add("du", CLASS, calling("du"), 0.5)
add("cd", CLASS, calling("cd", drops="file", folder=Drawn("d", _folder, "name")), 1.2)
add("mkdir", CLASS, calling("mkdir", dir_name=Drawn("d", _new_folder, "name")))
add("touch", CLASS, calling("touch", file_name=Drawn("f", _new_file, "name", "file")))


@operation(CLASS)
def touch_echo(stage: Stage) -> Slots:
    name, content = stage.values.file_name(), stage.values.text()
    stage.call("touch", file_name=name)
    stage.call("echo", content=content, file_name=name)
    return {"f": stage.mention("file", name), "t": Slot(content, "text")}


@operation(CLASS)
def echo(stage: Stage) -> Slots | None:
    name = _file(stage)
    if name is None:
        return None
    content = stage.values.text()
    stage.call("echo", content=content, file_name=name)
    return {"f": stage.mention("file", name), "t": Slot(content, "text")}


add("cat", CLASS, calling("cat", file_name=WRITTEN), 2)
add("wc_l", CLASS, calling("wc", file_name=WRITTEN, mode="l"))
add("wc_w", CLASS, calling("wc", file_name=WRITTEN, mode="w"))
add("wc_c", CLASS, calling("wc", file_name=WRITTEN, mode="c"), 0.7)
add("sort", CLASS, calling("sort", file_name=WRITTEN))


@operation(CLASS)
def grep(stage: Stage) -> Slots | None:
    name = _file(stage, filled=True)
    words = [word for word in _here(stage)[name].content.split() if word.isalpha()] if name else []
    if not words:
        return None
    word = stage.values.pick(words)
    stage.call("grep", file_name=name, pattern=word)
    return {"f": stage.mention("file", name), "p": Slot(word, "text")}


add("tail", CLASS, calling("tail", file_name=WRITTEN, lines=Drawn("n", whole(1, 5))))


def _renaming(tool: str) -> Run:
    def run(stage: Stage) -> Slots | None:
        name = _file(stage)
        if name is None:
            return None
        new = stage.values.file_name(like=name)
        stage.call(tool, source=name, destination=new)
        slots = {"f": stage.mention("file", name), "g": Slot(new, "name")}
        if tool == "mv":
            stage.put_in_focus("file", new)
        else:  # "it" could be either
            stage.drop_focus("file")
        return slots

    return run


add("mv_name", CLASS, _renaming("mv"))
add("cp_name", CLASS, _renaming("cp"))


def _into_folder(tool: str) -> Run:
    def run(stage: Stage) -> Slots | None:
        name, folder = _file(stage), stage.values.pick(_folders(stage))
        if name is None or folder is None:
            return None
        stage.call(tool, source=name, destination=folder)
        slots = {"f": stage.mention("file", name), "d": Slot(folder, "name")}
        stage.drop_focus("file")
        return slots

    return run


add("mv_dir", CLASS, _into_folder("mv"), 1.2)
add("cp_dir", CLASS, _into_folder("cp"))

add("rm", CLASS, calling("rm", drops="file", file_name=FILE))
add("rmdir", CLASS, calling("rmdir", dir_name=Drawn("d", _empty_folder, "name")), 0.7)
add("find", CLASS, calling("find", drops="file", path=".", name=Drawn("f", _name_elsewhere, "name")))


@operation(CLASS)
def diff(stage: Stage) -> Slots | None:
    one, other = _file(stage, filled=True), _file(stage, filled=True)
    if one is None or one == other:
        return None
    stage.call("diff", file_name1=one, file_name2=other)
    slots = {"f": stage.mention("file", one), "g": Slot(other, "name")}
    stage.drop_focus("file")
    return slots


def _new_or_other(
    tool: str, argument: str, existing: Callable[[Stage], str | None], new: Callable[[Stage], str]
) -> Run:
    """Create a thing, or another one if the name is taken."""

    def run(stage: Stage) -> Slots | None:
        wanted = existing(stage) if stage.values.chance(0.6) else new(stage)
        other = new(stage)
        if wanted is None or wanted == other or other in _here(stage):
            return None
        if wanted in _here(stage):
            stage.fail("taken_name", tool, **{argument: wanted})
            stage.call(tool, **{argument: other})
        else:
            stage.call(tool, **{argument: wanted})
        stage.drop_focus("file")
        return {"f": Slot(wanted, "name"), "g": Slot(other, "name")}

    return run


add("touch_alt", CLASS, _new_or_other("touch", "file_name", _file, _new_file), 1.5)
add("mkdir_alt", CLASS, _new_or_other("mkdir", "dir_name", _folder, _new_folder), 1.5)


@operation(CLASS, 2.5)
def cat_far(stage: Stage) -> Slots | None:
    place = _elsewhere(stage)
    if place is None:
        return None
    folder, name = place
    stage.fail("elsewhere", "cat", file_name=name)
    stage.call("find", path=".", name=name)
    stage.call("cd", folder=folder)
    stage.call("cat", file_name=name)
    stage.put_in_focus("file", name)
    return {"f": Slot(name, "name")}
