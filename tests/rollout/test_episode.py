"""An episode that outlives its service, here on environments in this process."""

import asyncio
import datetime
from types import SimpleNamespace

from env_service.client import ServiceError
from env_service.environments.base import Guard
from env_service.environments.bfcl import clock
from env_service.environments.bfcl.catalog import load_tasks
from env_service.environments.bfcl.environment import BfclEnvironment
from env_service.environments.bfcl.tools import Toolbox
from env_service.environments.kit.formats import FORMATS
from seal.rollout.episode import Episode

VERIFY = "verify_traveler_information"


class Forgetful:
    """A service that loses its episodes when `restarted` is set."""

    url, restarted = "here", False

    def __init__(self):
        self._episodes = {}

    async def create(self, task_id, instance_id, params):
        self._episodes[instance_id] = BfclEnvironment().open(task_id, params, Guard())
        return self._episodes[instance_id].start()

    async def step(self, instance_id, content, truncated, step_id, role):
        if self.restarted:
            self.restarted = False
            raise ServiceError("environment_lost", "it was restarted")
        return self._episodes[instance_id].step(content, truncated)


def test_an_episode_that_is_rebuilt_after_midnight_keeps_its_day():
    task = next(task for task in load_tasks().values() if VERIFY in str(task.reference))
    traveller = Toolbox(task).instances["TravelAPI"]
    names = {"first_name": traveller.user_first_name, "last_name": traveller.user_last_name}
    of_age = FORMATS["compact"].render_call(VERIFY, names | {"date_of_birth": "2000-05-17", "passport_number": "US1"})
    service = Forgetful()

    async def chosen(key):
        return service

    async def played():
        params = {"split": "val", "tool_prompt_mode": "compact"}
        episode = Episode(SimpleNamespace(choose=chosen), task.id, params)
        with clock.as_of(datetime.date(2018, 5, 16)):
            await episode.create()
            before = await episode.step(of_age)
        service.restarted = True
        with clock.as_of(datetime.date(2018, 5, 17)):
            return before, await episode.step(of_age), episode.rebuilt

    before, after, rebuilt = asyncio.run(played())
    assert rebuilt == 1 and "18 years" in before.messages[-1]["content"] and after.messages == before.messages
