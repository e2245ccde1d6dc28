"""Shapes of the keys of well-known services, which are secret wherever they occur.

Each alternative either has a bounded length or cannot fail after its minimum, so that a search is linear in the text.
"""

import re

_SERVICES = (
    r"hf_[A-Za-z0-9]{20,}|api_org_[A-Za-z]{20,}",  # Hugging Face
    r"gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}",
    r"gl(?:pat|dt|rt|ptt|ft|imt|soat|oas|cbt|ffct|agent|rtr)-[\w.-]{16,}|GR1348941[\w-]{20,}",  # GitLab
    r"sk-[\w-]{20,}|sk_[a-f0-9]{40,}|sess-[A-Za-z0-9]{30,}",  # OpenAI, Anthropic, OpenRouter, DeepSeek, ElevenLabs
    r"(?:sk|rk|pk)_(?:live|test|prod)_[A-Za-z0-9]{10,}|whsec_[A-Za-z0-9+/=]{20,}",  # Stripe
    r"gsk_[A-Za-z0-9]{20,}|xai-[\w-]{20,}|pplx-[A-Za-z0-9]{20,}|r8_[A-Za-z0-9]{20,}",
    r"tgp_v1_[\w-]{20,}|fw_[A-Za-z0-9]{20,}",
    r"nvapi-[\w-]{30,}|rpa_[A-Za-z0-9]{20,}|csk-[a-z0-9]{20,}|esecret_\w{20,}|jina_[A-Za-z0-9]{30,}|tvly-[\w-]{20,}",
    r"lsv2_(?:pt|sk)_[a-f0-9]{20,}(?:_[a-f0-9]{6,})?|(?:sk|pk)-lf-[\w-]{20,}",  # LangSmith, Langfuse
    r"wandb_v\d_\w{20,}|weave_\w{30,}",
    r"A(?:KIA|SIA|BIA|CCA)[0-9A-Z]{16}|ABSK[A-Za-z0-9+/]{40,}=*|bedrock-api-key-[A-Za-z0-9+/=]{20,}",  # AWS
    r"AIza[\w-]{30,}|ya29\.[\w.-]{20,}|GOCSPX-[\w-]{20,}|1//0[\w-]{30,}",  # Google
    r"LTAI[A-Za-z0-9]{16,}|AKID[A-Za-z0-9]{20,}|AKLT[\w-]{20,}",  # Alibaba, Tencent, Volcengine
    r"dapi[0-9a-f]{32}(?:-\d)?|do[opr]_v1_[a-f0-9]{40,}|HRKU-[\w-]{30,}|sbp_[a-f0-9]{40}|sb_secret_[\w-]{20,}",
    r"hv[sb]\.[\w-]{20,}|[A-Za-z0-9]{14}\.atlasv1\.[\w=-]{40,}|dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,}",
    r"dckr_[po]at_[\w-]{20,}|AKCp[A-Za-z0-9]{50,}|cmVmd[A-Za-z0-9]{50,}|tskey-[\w-]{16,}|ops_eyJ[A-Za-z0-9+/]{40,}=*",
    r"npm_[A-Za-z0-9]{30,}|pypi-[\w-]{30,}|rubygems_[a-f0-9]{40,}|cio[A-Za-z0-9]{32}|CLOJARS_[a-z0-9]{40,}",
    r"xox[abeoprs](?:\.xox[bp])?-[A-Za-z0-9-]{10,}|xapp-[A-Za-z0-9-]{10,}|SG\.[\w-]{16,64}\.[\w-]{16,80}",
    r"SK[0-9a-f]{32}|key-[0-9a-f]{32}|xkeysib-[a-f0-9]{40,}(?:-[A-Za-z0-9]{10,})?|\d{8,10}:AA[\w-]{32,34}(?![\w-])",
    r"lin_api_[A-Za-z0-9]{30,}|ntn_[A-Za-z0-9]{40,}|secret_[A-Za-z0-9]{43}",
    r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}|pul-[a-f0-9]{40}",
    r"ATATT3[\w=-]{40,}|ATCTT3[\w=-]{40,}|figd_[\w-]{30,}|shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    r"EAAA[\w-]{50,}|sq0[a-z]{3}-[\w-]{22,}",
    r"gl(?:sa|c)_[A-Za-z0-9+/_]{32,}=*|sntry[su]_[\w+/=-]{40,}|dt0c01\.[A-Z0-9]{24}\.[A-Z0-9]{64}|NRAK-[A-Z0-9]{27}",
    r"pscale_(?:tkn|oauth|pw)_[\w.=-]{30,}|AGE-SECRET-KEY-1[A-Z0-9]{50,}|p8e-[a-z0-9]{32}|phx_[A-Za-z0-9]{40,}",
    # Keys of Weights & Biases before 2025, among others; commits have the same shape.
    r"(?<!/blob/)(?<!/tree/)(?<!/commit/)(?<!/raw/)(?<!ommit )(?<!ommit: )[0-9a-f]{40}(?![0-9A-Za-z])",
)
KNOWN = re.compile(rf"(?<![A-Za-z0-9])(?:{'|'.join(_SERVICES)})|(?<![\w-])eyJ[\w-]{{10,}}\.[\w-]{{10,}}(?:\.[\w-]*)*")

_RUN = re.compile(r"[A-Za-z0-9]+")
_BORDER = re.compile(r"(?<=[0-9])(?=[A-Za-z])|(?<=[A-Za-z])(?=[0-9])")
_BORDERS = 2
_SHORTEST, _LONG = 8, 24


def looks_random(value: str) -> bool:
    """Return whether a value without a known shape reads as generated: letters and digits mixed, or one long run."""
    if len(value) < _SHORTEST or any(c.isspace() for c in value):
        return False
    longest = max(_RUN.findall(value), key=len, default="")
    if len(longest) >= _LONG:
        return True
    return len(longest) >= _SHORTEST and len(_BORDER.findall(longest)) >= _BORDERS
