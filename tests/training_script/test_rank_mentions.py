"""Modules that mention distributed training, which alone are reviewed."""

import pytest
from ddpwizard.app.training_script.model.rank_mentions import concerns_ranks


@pytest.mark.parametrize(
    "code",
    [
        "import torch.distributed as dist\n",
        "x = 1  # a comment\ndist.barrier()\n",
        "# distributed under the License\nmodel = DDP(model)\n",
        "from lightning.pytorch.strategies import DDPStrategy\n",
        "low_rank = 8\nif rank == 0:\n    print(low_rank)\n",
        "self.rank = rank\n",
        "device = int(os.environ['LOCAL_RANK'])\n",
    ],
)
def test_code_with_a_word_of_distributed_training_concerns_ranks(code: str) -> None:
    assert concerns_ranks(code)


@pytest.mark.parametrize(
    "code",
    [
        "# Unless required by law, software distributed under the License\nx = 1\n",
        "def f():\n    # the rank of this process\n    return 1\n",
        "latents = encoded.latent_dist.sample()\n",
        "from .schedulers import DDPMScheduler\n",
        "layer = Adapter(lora_rank=8)\n",
        "x = 1\n",
    ],
)
def test_comments_and_other_words_do_not_concern_ranks(code: str) -> None:
    assert not concerns_ranks(code)
