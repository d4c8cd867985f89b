"""Operations of TwitterAPI."""

from shelf.testbed.synthesis.operations.registry import Drawn, add, calling, logging_in, text
from shelf.testbed.synthesis.stage import Stage

CLASS = "TwitterAPI"

add("auth_twitter", CLASS, logging_in(CLASS, lambda own: own.authenticated), 0.6)


def _tags(stage: Stage) -> list[str]:
    return [f"#{stage.values.word().capitalize()}" for _ in range(stage.values.pick((1, 1, 2)))]


CONTENT, TAGS = Drawn("t", text, "text"), Drawn("h", _tags, "list")
MENTIONS = Drawn("m", lambda stage: [f"@{stage.values.word()}"], "list")
MADE = ("tweet", "id")

add("post", CLASS, calling("post_tweet", creates=MADE, content=CONTENT))
add("post_tags", CLASS, calling("post_tweet", creates=MADE, content=CONTENT, tags=TAGS))
add("post_mention", CLASS, calling("post_tweet", creates=MADE, content=CONTENT, mentions=MENTIONS))
add("post_both", CLASS, calling("post_tweet", creates=MADE, content=CONTENT, tags=TAGS, mentions=MENTIONS))


def _tweet(stage: Stage) -> int | None:
    last = stage.focus("tweet")
    return last if last is not None and stage.values.chance(0.7) else stage.values.pick(stage.simulator(CLASS).tweets)


def _not_retweeted(stage: Stage) -> int | None:
    tweet, own = _tweet(stage), stage.simulator(CLASS)
    return None if tweet in own.retweets.get(own.username, ()) else tweet


TWEET = Drawn("w", _tweet, "name", "tweet")

add("retweet", CLASS, calling("retweet", tweet_id=Drawn("w", _not_retweeted, "name", "tweet")))
add("comment", CLASS, calling("comment", tweet_id=TWEET, comment_content=CONTENT))
add("mention", CLASS, calling("mention", tweet_id=TWEET, mentioned_usernames=MENTIONS))


def _tweeted_word(stage: Stage) -> str | None:
    texts = [tweet["content"] for tweet in stage.simulator(CLASS).tweets.values()]
    return stage.values.pick([word for text in texts for word in text.split() if word.isalpha()])


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
