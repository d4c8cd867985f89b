"""The atomic faults that telecom's tasks combine, and the split that holds some of them out.

2,285 tasks combine 19 faults. The package's own split divides tasks, so that every fault is on both sides. Here
families of faults, which share a remedy, are held out: a task is for training if it has no held-out fault, and for
evaluation if it has only held-out faults. Tasks that mix both belong to neither side.
"""

import re

from env_service.environments.base import Side

FAMILIES: dict[str, tuple[str, ...]] = {
    "airplane mode": ("airplane_mode_on",),
    "network preference": ("bad_network_preference",),
    "vpn": ("bad_vpn",),
    "data saver": ("data_saver_mode_on",),
    "data usage": ("data_usage_exceeded",),
    "roaming": (
        "user_abroad_roaming_enabled_off",
        "user_abroad_roaming_disabled_on",
        "user_abroad_roaming_disabled_off",
    ),
    "access point": ("break_apn_mms_setting", "break_apn_settings"),
    "wifi calling": ("bad_wifi_calling",),
    "mobile data": ("data_mode_off",),
    "permissions": ("break_app_sms_permission", "break_app_storage_permission", "break_app_both_permissions"),
    "sim": ("unseat_sim_card", "lock_sim_card_pin"),
    "suspension": ("overdue_bill_suspension", "contract_end_suspension"),
}
HELD_OUT = frozenset({"access point", "wifi calling", "mobile data", "permissions", "sim", "suspension"})
RULE = "No fault, and no other fault with the same remedy, is on both sides; tasks that mix both sides are left out."

_FAMILY = {fault: family for family, faults in FAMILIES.items() for fault in faults}
_ID = re.compile(r"\[(?P<issue>\w+)\](?P<faults>[\w|]+)\[PERSONA:\w+\]")


def issue_of(task_id: str) -> str:
    """The kind of ticket, which is a task's category: mms_issue, mobile_data_issue or service_issue."""
    return _parsed(task_id)["issue"]


def faults_of(task_id: str) -> tuple[str, ...]:
    """The faults of a task, in the order of its id."""
    return tuple(_parsed(task_id)["faults"].split("|"))


def side_of(task_id: str) -> Side | None:
    """The side of the default split, None for a task that mixes both sides' faults."""
    held = {_FAMILY[fault] in HELD_OUT for fault in faults_of(task_id)}
    return None if len(held) > 1 else "eval" if True in held else "train"


def group_of(task_id: str) -> str:
    """The families of a task's faults, which determine its side."""
    return " + ".join(sorted({_FAMILY[fault] for fault in faults_of(task_id)}))


def _parsed(task_id: str) -> re.Match[str]:
    match = _ID.fullmatch(task_id)
    if match is None:
        raise ValueError(f"{task_id!r} is not an id of tau2's telecom tasks.")
    return match
