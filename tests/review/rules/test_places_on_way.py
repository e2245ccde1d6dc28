"""Places that lead to a finding in a helper: the calls that hand a value on, and where it is made."""

from helpers.review_snippets import found, script

GROUP = 'dist.init_process_group("gloo")\n'
INNER = (
    GROUP
    + """
class Steps:
    def loss(self, net, x):
        return net(x).sum()
def train(steps, ddp, data):
    net = ddp.module
    for x in data:
        loss = steps.loss(net, x)
        loss.backward()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
train(Steps(), model, torch.ones(4, 2))
"""
)
SIZES = (
    GROUP
    + """
def collect(part):
    parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, part)
    return parts
mine = torch.arange(7 + dist.get_rank())
collect(mine)
"""
)


def _related(code: str, rule: str) -> list[str]:
    (finding,) = found(code, rule)
    text = script(code).split("\n")
    return [text[each.line - 1].strip() for each in finding.related]


def test_inner_model_that_a_method_is_given() -> None:
    assert _related(INNER, "DW207") == ["loss = steps.loss(net, x)", "net = ddp.module"]


def test_inner_model_that_the_call_takes_itself() -> None:
    own = INNER.replace("return net(x)", "return net.module(x)").replace("net = ddp.module", "net = ddp")
    assert _related(own, "DW207") == []


def test_part_that_a_function_is_given() -> None:
    assert _related(SIZES, "DW427") == ["collect(mine)", "mine = torch.arange(7 + dist.get_rank())"]


def test_tensor_of_another_type_that_a_function_is_given() -> None:
    code = SIZES.replace("dist.all_gather(parts, part)", "dist.all_reduce(part)")
    made = "mine = torch.ones(2) if dist.get_rank() else torch.ones(2, dtype=torch.int64)"
    code = code.replace("mine = torch.arange(7 + dist.get_rank())", made)
    assert _related(code, "DW441") == ["collect(mine)", made]
    assert found(code.replace(", dtype=torch.int64", ""), "DW441") == []
