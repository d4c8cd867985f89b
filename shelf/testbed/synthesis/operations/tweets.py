"""Operations of TwitterAPI."""

from typing import Any

from shelf.testbed.synthesis.operations.registry import Drawn, Run, add, calling, logging_in, operation
from shelf.testbed.synthesis.path import Slot, Slots
from shelf.testbed.synthesis.stage import Stage

CLASS = "TwitterAPI"


add("auth_twitter", CLASS, logging_in(CLASS, lambda own: own.authenticated), 0.6)


def _post(tags: bool = False, mentions: bool = False) -> Run:
    def run(stage: Stage) -> Slots:
        values = stage.values
        arguments: dict[str, Any] = {"content": values.text()}
        slots = {"t": Slot(arguments["content"], "text")}
        if tags:
            arguments["tags"] = [f"#{values.word().capitalize()}" for _ in range(values.pick((1, 1, 2)))]
            slots["h"] = Slot(arguments["tags"], "list")
        if mentions:
            arguments["mentions"] = [f"@{values.word()}"]
            slots["m"] = Slot(arguments["mentions"], "list")
        stage.created("tweet", stage.call("post_tweet", **arguments)["id"])
        return slots

    return run


add("post", CLASS, _post())
add("post_tags", CLASS, _post(tags=True))
add("post_mention", CLASS, _post(mentions=True))
add("post_both", CLASS, _post(tags=True, mentions=True))


def _tweet(stage: Stage) -> int | None:
    last = stage.focus("tweet")
    return last if last is not None and stage.values.chance(0.7) else stage.values.pick(stage.simulator(CLASS).tweets)


def _not_retweeted(stage: Stage) -> int | None:
    tweet, own = _tweet(stage), stage.simulator(CLASS)
    return None if tweet in own.retweets.get(own.username, ()) else tweet


add("retweet", CLASS, calling("retweet", tweet_id=Drawn("w", _not_retweeted, "name", "tweet")))


@operation(CLASS)
def comment(stage: Stage) -> Slots | None:
    tweet, text = _tweet(stage), stage.values.text()
    if tweet is None:
        return None
    stage.call("comment", tweet_id=tweet, comment_content=text)
    return {"w": stage.mention("tweet", tweet), "t": Slot(text, "text")}


@operation(CLASS)
def mention(stage: Stage) -> Slots | None:
    tweet, user = _tweet(stage), f"@{stage.values.word()}"
    if tweet is None:
        return None
    stage.call("mention", tweet_id=tweet, mentioned_usernames=[user])
    return {"w": stage.mention("tweet", tweet), "m": Slot(user)}


def _tweeted_word(stage: Stage) -> str | None:
    texts = [tweet["content"] for tweet in stage.simulator(CLASS).tweets.values()]
    return stage.values.pick([word for text in texts for word in text.split() if word.isalpha()])


TWEET = Drawn("w", _tweet, "name", "tweet")
NEW_USER = Drawn("n", lambda stage: stage.values.user_name(), "name")
FOLLOWED = Drawn("n", lambda stage: stage.values.pick(stage.simulator(CLASS).following_list), "name")
OWN_NAME = Drawn("n", lambda stage: stage.simulator(CLASS).username, "name")

add("follow", CLASS, calling("follow_user", username_to_follow=NEW_USER))
add("unfollow", CLASS, calling("unfollow_user", username_to_unfollow=FOLLOWED))
add("list_following", CLASS, calling("list_all_following"), 0.7)
add("get_tweet", CLASS, calling("get_tweet", tweet_id=TWEET))
add("tweet_comments", CLASS, calling("get_tweet_comments", tweet_id=TWEET), 0.7)
add("user_tweets", CLASS, calling("get_user_tweets", username=OWN_NAME), 0.8)
add("user_stats", CLASS, calling("get_user_stats", username=OWN_NAME), 0.8)
add("search_tweets", CLASS, calling("search_tweets", keyword=Drawn("p", _tweeted_word, "text")))
