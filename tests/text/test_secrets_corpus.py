"""One hundred shapes of secrets, of which 97 have to be hidden, and one hundred values that have to stay.

No secret is one of a real account: all consist of the prefix of a service and of the same letters.
"""

import time

import pytest
from ddpwizard.app.text import redact

MIX = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4i5J6k7L8m9N0o1P2q3R4s5T6"
HEX = "0123456789abcdef" * 6
LOW = MIX.lower()
PLAIN = "s3cr3tV4lue-9x"
WORDS = "correct horse battery staple"

# Keys that are secret by their shape, in a sentence without a name that means a secret.
SHAPES = [
    f"hf_{'AbCdEfGhIj' * 4}",
    f"ghp_{MIX[:36]}",
    f"gho_{MIX[:36]}",
    f"ghs_{MIX[:36]}",
    f"github_pat_{MIX[:22]}_{MIX[:59]}",
    f"glpat-{MIX[:20]}",
    f"glpat-{MIX[:40]}.01.{LOW[:9]}",
    f"gldt-{MIX[:20]}",
    f"glrt-{MIX[:20]}",
    f"sk-{MIX[:48]}",
    f"sk-proj-{MIX[:74]}",
    f"sk-ant-api03-{MIX[:80]}",
    f"sk-or-v1-{HEX[:64]}",
    f"sk_live_{MIX[:24]}",
    f"rk_test_{MIX[:24]}",
    f"whsec_{MIX[:32]}",
    f"gsk_{MIX[:52]}",
    f"xai-{MIX[:80]}",
    f"pplx-{MIX[:48]}",
    f"r8_{MIX[:37]}",
    f"tgp_v1_{MIX[:43]}",
    f"nvapi-{MIX[:64]}",
    f"lsv2_pt_{HEX[:32]}_{HEX[:10]}",
    f"lsv2_sk_{HEX[:32]}_{HEX[:10]}",
    f"wandb_v1_{MIX[:27]}_{MIX[:49]}",
    f"local-{HEX[:40]}",
    "AKIA" + "ABCD2345" * 2,
    f"ASIA{'ABCD2345' * 2}",
    f"AIza{MIX[:35]}",
    f"ya29.{MIX[:60]}",
    f"GOCSPX-{MIX[:28]}",
    f"dapi{HEX[:32]}",
    f"dop_v1_{HEX[:64]}",
    f"HRKU-AA{MIX[:58]}",
    f"hvs.{MIX[:90]}",
    f"dp.pt.{MIX[:43]}",
    f"dckr_pat_{MIX[:27]}",
    f"tskey-auth-{MIX[:12]}CNTRL-{MIX[:32]}",
    f"npm_{MIX[:36]}",
    f"pypi-AgEIcHlwaS5vcmc{MIX[:60]}",
    f"xoxb-1234567890-1234567890-{MIX[:24]}",
    f"xapp-1-A012345-0123456789-{HEX[:32]}",
    f"SG.{MIX[:22]}.{MIX[:43]}",
    f"lin_api_{MIX[:40]}",
    f"PMAK-{HEX[:24]}-{HEX[:34]}",
    f"glsa_{MIX[:32]}_{HEX[:8]}",
    f"ATATT3xFfGF0{MIX[:60]}",
    f"figd_{MIX[:40]}",
    f"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.{MIX[:43]}",
    HEX[:40],
]
# A line, and the part of it that must not be seen.
LINES = [
    (f"AWS_SESSION_TOKEN={PLAIN}", PLAIN),
    (f"SESSION_TOKEN={PLAIN}", PLAIN),
    (f"ADMIN_TOKEN={PLAIN}", PLAIN),
    (f"LOGIN_TOKEN={PLAIN}", PLAIN),
    (f"JOIN_TOKEN={PLAIN}", PLAIN),
    (f"REGISTRATION_TOKEN={PLAIN}", PLAIN),
    (f"AUTHENTICATION_TOKEN={PLAIN}", PLAIN),
    (f"TOKENIZER_SECRET={PLAIN}", PLAIN),
    (f"tokenizer_api_key: {PLAIN}", PLAIN),
    (f"KAGGLE_KEY={PLAIN}", PLAIN),
    (f"COMET_KEY={PLAIN}", PLAIN),
    (f"OPENAI_KEY={PLAIN}", PLAIN),
    (f"ENCRYPTION_KEY={PLAIN}", PLAIN),
    (f"SIGNING_KEY={PLAIN}", PLAIN),
    (f"UNHEARD_OF_KEY={PLAIN}", PLAIN),
    (f"train.py --wandb-key {PLAIN} --lr 1", PLAIN),
    (f"train.py --license_key={PLAIN}", PLAIN),
    (f"wandb.login(key='{MIX[:40]}')", MIX[:40]),
    (f"GITHUB_PAT={PLAIN}", PLAIN),
    (f"AZURE_DEVOPS_EXT_PAT={PLAIN}", PLAIN),
    (f"SLURM_JWT={PLAIN}", PLAIN),
    (f"HUGGINGFACE_AUTHTOKEN={PLAIN}", PLAIN),
    (f"ENV HF_TOKEN {PLAIN}", PLAIN),
    ("NOTEBOOK_TOKEN=8472910", "8472910"),
    ("jupyter --token 8472910", "8472910"),
    (f'{{"body": "{{\\"api_key\\": \\"{PLAIN}\\"}}"}}', PLAIN),
    (f'"{{\\\\\\"password\\\\\\": \\\\\\"{PLAIN}\\\\\\"}}"', PLAIN),
    (f"docker login -u me -p {PLAIN} registry.example.org", PLAIN),
    (f"sshpass -p {PLAIN} ssh node-1", PLAIN),
    (f"sshpass -p '{PLAIN}' ssh node-1", PLAIN),
    (f"mysql -u root -p{PLAIN} runs", PLAIN),
    (f"redis-cli -h cache -a {PLAIN} ping", PLAIN),
    (f"machine example.org login me password {PLAIN}", PLAIN),
    (f"machine example.org\n  login me\n  password {PLAIN}\n", PLAIN),
    (f"passphrase: {WORDS}", "battery"),
    (f"password = {WORDS}", "battery"),
    (f"MY_PASSWORD='{WORDS}'", "battery"),
    (f'password: str = "{PLAIN}"', PLAIN),
    (f"os.environ['HF_TOKEN'] = '{PLAIN}'", PLAIN),
    (f"https://me:{PLAIN}@example.org/x.git", PLAIN),
    (f"redis://:{PLAIN}@cache:6379", PLAIN),
    (f"https://example.org/d?token={PLAIN}&x=1", PLAIN),
    (f"https://bucket.example.org/k?X-Amz-Signature={PLAIN}", PLAIN),
    (f"https://hooks.slack.com/services/T0/B0/{PLAIN}", PLAIN),
    (f"Authorization: Bearer {PLAIN}", PLAIN),
    (f"x-api-key: {PLAIN}", PLAIN),
    (f"Cookie: session={PLAIN}", PLAIN),
    (f"curl -u me:{PLAIN} https://example.org", PLAIN),
    (f"-----BEGIN PGP PRIVATE KEY BLOCK-----\n{PLAIN}\n-----END PGP PRIVATE KEY BLOCK-----", PLAIN),
    (f"AccountKey={PLAIN};EndpointSuffix=x", PLAIN),
]
# Further lines, beyond the hundred: code, prose, lists of variables, and other programs.
MORE_LINES = [
    (f"os.environ.setdefault('HF_TOKEN', '{PLAIN}')", PLAIN),
    (f"token = b'{PLAIN}'", PLAIN),
    (f"requests.get(url, auth=HTTPBasicAuth('me', '{PLAIN}'))", PLAIN),
    (f"<password>{PLAIN}</password>", PLAIN),
    (f"- name: HF_TOKEN\n  value: {PLAIN}", PLAIN),
    (f'{{"name": "HF_TOKEN", "value": "{PLAIN}"}}', PLAIN),
    (f"login with password {PLAIN}", PLAIN),
    (f"password => {PLAIN}", PLAIN),
    (f"SharedAccessSignature={PLAIN}", PLAIN),
]
HARMLESS = """\
token=token, private=private
self.hub_token = token
if tokens == []:
tokens = {}
# Second pass: prepare schedulers
AUTO_MODULE_KEY = 'auto'
_token: Token | None = None
api_key = _ask_field("API key: ")
names = ("cache_dir", "token", "local_files_only")
required = ["HF_TOKEN", "WANDB_API_KEY"]
Just pass cls=ScientificNotationEncoder to json.dumps
https://github.com/pytorch/pytorch/blob/5fba5d83f0703ff8077ab65448a998e9ad6598fd/c10/cuda/Allocator.cpp
max_tokens=4096
max_new_tokens: 512
num_tokens=123456789
min_tokens=1
n_tokens: 77
ntokens=1048576
total_tokens=8472910123
tokens_per_second: 12345.6
tokens per second 123456
token_ids=[1, 2, 3]
"token_type_ids": [0, 0, 1]
token_count=8472910
pad_token='<pad>'
eos_token: "<|endoftext|>"
bos_token="[BOS]"
cls_token = nn.Parameter(torch.zeros(1, 1, dim))
mask_token_id=50264
image_token_index=32000
pad_token=151643
special_tokens_map.json
tokenizer=AutoTokenizer.from_pretrained(name)
tokenizer: meta-llama/Llama-3.1-8B
tokenizer_name=bert-base-uncased
tokenizer_path=/data/tok4x8y2/model
TOKENIZERS_PARALLELISM=false
detokenize=True
tokens = batch['tokens'].to(device)
token=args.token
token=None
use_auth_token=True
hf_token=os.environ["HF_TOKEN"]
api_key=os.environ.get("OPENAI_API_KEY")
api_key=None
password=None
password: null
password=$DB_PASSWORD
HF_TOKEN=${HF_TOKEN}
HF_TOKEN_PATH=/home/me/.cache/huggingface/token
GOOGLE_APPLICATION_CREDENTIALS=/etc/keys/app.json
SSH_AUTH_SOCK=/tmp/ssh-x/agent.1
PWD=/home/me/runs OLDPWD=/home/me
sort_key=created_at
primary_key: run_id
foreign_key=runs.id
cache_key=3f2a9c11d0e84b7a
partition_key="2026-11-22"
PUBLIC_KEY=ssh-ed25519
state_dict_key=model.layer4.conv1.weight
key_padding_mask=None
key=lambda row: row[1]
sorted(items, key=by_rank)
for key, value in state.items():
key: layer_12.weight
"key": "value"
prompt_key=prompt
data.reward_key: score
label_key=label image_key=jpg
monkey=banana turkey: sandwich
hotkey: ctrl+k
KeyError: 'model.embed_tokens.weight'
missing key(s) in state_dict: "lm_head.weight"
query_key_value.weight
num_key_value_heads=8
qk_norm=True kv_lora_rank=512
forward_pass: slow
first_pass=2 num_passes: 3
pass_rate: 0.83
the second pass took 12 s
compass=north bypass: true
author=me authority: local
file_pattern=*.tar glob_pat=shard-*.tar
path=/data/imagenet
patience=5 patch_size=16
the token is missing
Token indices sequence length is longer than 1024
loss 2.345 at step 1200, 1.5e-4
Secret Santa was a success
rank 3 holds no secret
NCCL_SOCKET_IFNAME=eth0
NCCL_IB_HCA=mlx5_0:1,mlx5_1:1
MASTER_ADDR=10.0.0.1 MASTER_PORT=29500
CUDA_VISIBLE_DEVICES=GPU-8932f937-d72c-4106-c12f-20bd9faed9f6
TORCHELASTIC_RUN_ID=none
deepspeed --world_info=eyJsb2NhbGhvc3QiOiBbMCwgMSwgMiwgM119 train.py
--rdzv-id=job_8472910 --rdzv-endpoint=node-1:29400
torch==2.4.0+cu121
checkpoint-8472910/model-00001-of-00030.safetensors
libnccl.so.2.21.5+cuda12.4
http://10.0.0.1:29500/path?x=1
scp user@node-07:/data/x .
git@github.com:org/repo.git
me@example.org
sha256:abc123
0x7f3c2a9b1d00
UUID 8932f937-d72c-4106-c12f-20bd9faed9f6
2026-11-22T21:43:40.123456+00:00
[rank1]:[E1122 21:43:40.123456 ProcessGroupNCCL.cpp:1691] Watchdog caught collective operation timeout
WorkNCCL(SeqNum=1234, OpType=ALLREDUCE, NumelIn=123456789, Timeout(ms)=600000)
sk-learn==1.5.2 key-value-store r8_small
docker run -p 8888:8888 image
ssh -p 2222 node-1
mkdir -p runs/one
mysql -p runs
python -m torch.distributed.run --nproc-per-node=8 train.py -p 3
""".splitlines()


def test_lists_are_as_long_as_claimed() -> None:
    assert len(SHAPES) + len(LINES) == 100
    assert len(HARMLESS) >= 100


def test_at_least_97_of_100_secrets_are_hidden_in_text() -> None:
    cases = [(f"call failed for {key} in step 3", key[-16:]) for key in SHAPES] + LINES
    seen = [line for line, secret in cases if secret in redact.redact_text(line)]
    assert len(seen) <= 3, seen


@pytest.mark.parametrize(("line", "secret"), MORE_LINES)
def test_secret_of_another_place_is_hidden(line: str, secret: str) -> None:
    assert secret not in redact.redact_text(line)


def test_secrets_are_hidden_in_the_words_of_a_command() -> None:
    words = [
        ["docker", "login", "-u", "me", "-p", PLAIN],
        ["/usr/bin/sshpass", "-p", PLAIN, "ssh", "node-1"],
        ["mysql", "-u", "root", f"-p{PLAIN}"],
        ["redis-cli", "-a", PLAIN],
        ["train.py", "--wandb-key", PLAIN],
        ["train.py", "--session-token", PLAIN],
    ]
    assert [line for line in words if PLAIN in " ".join(redact.redact_command(line))] == []
    for harmless in (
        ["docker", "run", "-p", "8888:8888", "image"],
        ["mysql", "-p", "runs"],
        ["ssh", "-p", "2222", "n"],
    ):
        assert redact.redact_command(harmless) == harmless


@pytest.mark.parametrize("line", HARMLESS)
def test_harmless_line_is_unchanged(line: str) -> None:
    assert redact.redact_text(line) == line


@pytest.mark.parametrize(
    "piece", ["-eyJaaaaaaaaaa", "SG.aaaaaaaaaaaaaaaa.", "docker login ", "sk-a ", "machine m login "]
)
def test_unfinished_shapes_cost_linear_time(piece: str) -> None:
    def seconds(times: int) -> float:
        started = time.thread_time()
        redact.redact_text(piece * times)
        return time.thread_time() - started

    assert seconds(6000) < 40 * seconds(600) + 0.5
