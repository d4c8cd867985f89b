"""Operations of TwitterAPI."""

from typing import Any

from shelf.testbed.synthesis.operations.registry import Run, add, calling, logging_in, operation
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


@operation(CLASS)
def retweet(stage: Stage) -> Slots | None:
    tweet = _tweet(stage)
    if tweet is None or tweet in stage.simulator(CLASS).retweets.get(stage.simulator(CLASS).username, ()):
        return None
    stage.call("retweet", tweet_id=tweet)
    return {"w": stage.mention("tweet", tweet)}


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


@operation(CLASS)
def follow(stage: Stage) -> Slots:
    user = stage.values.user_name()
    stage.call("follow_user", username_to_follow=user)
    return {"n": Slot(user, "name")}


@operation(CLASS)
def unfollow(stage: Stage) -> Slots | None:
    user = stage.values.pick(stage.simulator(CLASS).following_list)
    if user is None:
        return None
    stage.call("unfollow_user", username_to_unfollow=user)
    return {"n": Slot(user, "name")}


add("list_following", CLASS, calling("list_all_following"), 0.7)


def _of_tweet(tool: str) -> Run:
    def run(stage: Stage) -> Slots | None:
        tweet = _tweet(stage)
        if tweet is None:
            return None
        stage.call(tool, tweet_id=tweet)
        return {"w": stage.mention("tweet", tweet)}

    return run


add("get_tweet", CLASS, _of_tweet("get_tweet"))
add("tweet_comments", CLASS, _of_tweet("get_tweet_comments"), 0.7)


def _of_own_account(tool: str) -> Run:
    def run(stage: Stage) -> Slots:
        user = stage.simulator(CLASS).username
        stage.call(tool, username=user)
        return {"n": Slot(user, "name")}

    return run


add("user_tweets", CLASS, _of_own_account("get_user_tweets"), 0.8)
add("user_stats", CLASS, _of_own_account("get_user_stats"), 0.8)


@operation(CLASS)
def search_tweets(stage: Stage) -> Slots | None:
    texts = [tweet["content"] for tweet in stage.simulator(CLASS).tweets.values()]
    word = stage.values.pick([word for text in texts for word in text.split() if word.isalpha()])
    if word is None:
        return None
    stage.call("search_tweets", keyword=word)
    return {"p": Slot(word, "text")}
