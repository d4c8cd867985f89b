"""Upload of an exported folder to the Hugging Face hub."""

from json import JSONDecodeError
from pathlib import Path

from httpx import HTTPError, InvalidURL
from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id


def require_push(name: str) -> None:
    """Check before the export: ValueError, in one sentence, if an upload under this name cannot begin."""
    try:
        validate_repo_id(name if "/" in name else "/")
    except HFValidationError:
        raise ValueError(f"--push {name} is not a name on the hub: write USER/NAME.") from None
    if get_token() is None:
        raise ValueError("--push needs a token of the Hugging Face hub: set HF_TOKEN, or run `hf auth login`.")
    if constants.HF_HUB_OFFLINE:
        raise ValueError("--push needs the hub, and HF_HUB_OFFLINE is set: unset it, or leave out --push.")


def push(folder: Path, name: str, *, public: bool) -> str:
    """Upload a folder as a new model or as the next version of one; return its address.

    Files that the folder lacks are removed there. A new model is private unless `public`. ValueError, in one sentence,
    if the hub refuses or does not answer, or if the model exists and its visibility is not the one asked for.
    """
    api = HfApi()
    try:
        address = str(api.create_repo(name, private=not public, exist_ok=True))
        if bool(api.model_info(name).private) == public:
            there, fix = ("private", "leave out") if public else ("public", "add")
            raise ValueError(f"{address} is there already and {there}: name another with --push, or {fix} --public.")
        api.upload_folder(repo_id=name, folder_path=folder, delete_patterns="*", commit_message="Export by SEAL")
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else "no status"
        raise ValueError(
            f"The hub refused {name} ({status}): check the name and that the token may write; {folder} is complete."
        ) from error
    except (HTTPError, InvalidURL, OSError, JSONDecodeError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{constants.ENDPOINT} does not answer as a hub does ({error!r}): upload {folder} later (`hf upload`)."
        ) from error
    return address
