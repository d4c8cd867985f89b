#!/usr/bin/env bash
# Collects what SEAL needs on a machine without a network: `bash scripts/offline_bundle.sh --help`.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'HELP'
usage: bash scripts/offline_bundle.sh [--cuda | --cpu] --out DIR [--chunk-size SIZE] [--python X.Y]

Writes to DIR, for Linux on x86-64:
  chunk.NNN           every wheel of the lock, and flash-attn's if there is one, in pieces of at most SIZE
  SHA256SUMS          of the pieces
  install_offline.sh  verifies and joins them, and runs install.sh with them

  --cuda | --cpu   which lock (default: --cuda)
  --out DIR        an empty folder, or one that does not exist
  --chunk-size     largest piece, as `split` reads it: 60M, 2G (default: 1G)
  --python X.Y     the Python of the other machine, 3.11 or 3.12 (default: 3.12 with --cuda, 3.11 with --cpu)

Copy DIR and this repository to the other machine, and run there, in the repository:
  bash DIR/install_offline.sh
PYTHON        an interpreter of that version with pip, which collects the wheels (default: pythonX.Y)
FLASH_ATTN_WHEEL  the flash-attn wheel (file or URL) to collect instead of verl's
HELP
}

fail() {
  printf 'offline_bundle.sh: %s\n' "$*" >&2
  exit 1
}

target=cuda
out=
size=1G
version=
while [ $# -gt 0 ]; do
  case $1 in
    --cuda | --cpu) target=${1#--} ;;
    -h | --help)
      usage
      exit 0
      ;;
    --out | --chunk-size | --python)
      [ -n "${2:-}" ] || fail "$1 needs a value; --help shows how."
      case $1 in
        --out) out=$2 ;;
        --chunk-size) size=$2 ;;
        --python) version=$2 ;;
      esac
      shift
      ;;
    *) fail "unknown option $1; --help lists the options." ;;
  esac
  shift
done
[ -n "$out" ] || fail "--out DIR is missing: name the folder to write."
[ -n "$version" ] || case $target in cuda) version=3.12 ;; cpu) version=3.11 ;; esac
case $version in 3.11 | 3.12) ;; *) fail "--python $version: SEAL runs on 3.11 and 3.12." ;; esac
split --bytes="$size" /dev/null 2>/dev/null || fail "--chunk-size $size is not a size; write it as 60M or 2G."
[ -z "$(ls -A "$out" 2>/dev/null)" ] || fail "$out is not empty: name a new folder."

python=${PYTHON:-python$version}
"$python" -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null ||
  fail "$python is not Python $version: name one with PYTHON=/path/to/python$version."

mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d "$out/.work.XXXXXX")
finish() {
  code=$?
  rm -rf "$work"
  [ "$code" -eq 0 ] || printf 'offline_bundle.sh: %s does not hold a complete bundle\n' "$out" >&2
}
trap finish EXIT

case $target in
  cpu) lock=$root/requirements-cpu.txt ;;
  cuda) lock=$root/requirements.txt ;;
esac
"$python" -m venv "$work/venv"
python=$work/venv/bin/python
pip() { "$python" -m pip --disable-pip-version-check --quiet --quiet "$@"; }

# `pip wheel` downloads wheels and builds the few packages that are only published as source.
collect() { pip wheel --no-deps --wheel-dir "$work/wheels" "$@"; }
if [ "$target" = cpu ]; then
  # The CPU build of torch is on PyTorch's own index, and on few others.
  torch=$(grep -E '^torch==' "$lock")
  collect "$torch" 2>/dev/null || collect --index-url https://download.pytorch.org/whl/cpu "$torch"
fi
grep -v -E '^torch==.*\+cpu' "$lock" >"$work/requirements.txt"
collect --requirement "$work/requirements.txt"

if [ "$target" = cuda ]; then
  flash_attn=(--requirement "$root/requirements-flash-attn.txt")
  [ -z "${FLASH_ATTN_WHEEL:-}" ] || flash_attn=("$FLASH_ATTN_WHEEL")
  if collect "${flash_attn[@]}"; then
    echo "flash-attn: $(cd "$work/wheels" && echo flash_attn-*)"
  else
    echo "flash-attn: left out, so that the other machine trains with torch's own attention (packed_sdpa)"
  fi
fi

count=$(find "$work/wheels" -name '*.whl' | wc -l)
tar --create --directory "$work" --sort=name --mtime=@0 --owner=0 --group=0 wheels |
  split --bytes="$size" --numeric-suffixes --suffix-length=3 - "$out/chunk."
(cd "$out" && sha256sum chunk.* >SHA256SUMS)

cat >"$out/install_offline.sh" <<INSTALL
#!/usr/bin/env bash
# Installs SEAL from the pieces beside this file; run it in the repository. Arguments go to install.sh.
set -euo pipefail
here=\$(cd "\$(dirname "\${BASH_SOURCE[0]}")" && pwd)
[ -f install.sh ] && [ -f launcher.py ] || {
  echo "install_offline.sh: run it in SEAL's repository: cd /path/to/seal && bash \$here/install_offline.sh" >&2
  exit 1
}
(cd "\$here" && sha256sum --check --quiet SHA256SUMS) || {
  echo "install_offline.sh: a piece is missing or damaged; copy it again." >&2
  exit 1
}
work=\$(mktemp -d)
trap 'rm -rf "\$work"' EXIT
cat "\$here"/chunk.* | tar --extract --directory "\$work"
bash install.sh --$target --wheels "\$work/wheels" "\$@"
INSTALL
printf '%s: %s wheels in %s pieces, %s\n' "$out" "$count" "$(find "$out" -name 'chunk.*' | wc -l)" \
  "$(du -sh --exclude='.work*' "$out" | cut -f1)"
