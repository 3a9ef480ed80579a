import copy
import json

import pytest
import torch

from labeldp.errors import InvalidArgument
from labeldp.torch import models
from labeldp.torch.models import registry

DIGITS = {"kind": "image", "shape": [1, 8, 8]}
FASHION = {"kind": "image", "shape": [1, 28, 28]}
CIFAR = {"kind": "image", "shape": [3, 32, 32]}
ROW = {"kind": "vector", "size": 13}
PAIRS = {"kind": "ids", "sizes": [7, 5]}

IMAGE_MODELS = (
    "inception-small",
    "linear",
    "medium-conv",
    "mlp",
    "resnet18-v2",
    "small-conv",
    "small-conv-groupnorm",
    "tiny-conv",
)
EVERY = [(name, DIGITS) for name in IMAGE_MODELS] + [("linear", ROW), ("mlp", ROW), ("ncf", PAIRS)]
every_model = pytest.mark.parametrize(("name", "inputs"), EVERY, ids=lambda part: part if isinstance(part, str) else "")


def batch(inputs, n_rows=4):
    generator = torch.Generator().manual_seed(1)
    if inputs["kind"] == "ids":
        return torch.stack([torch.randint(size, (n_rows,), generator=generator) for size in inputs["sizes"]], dim=1)
    return torch.rand(n_rows, *inputs.get("shape", [inputs.get("size")]), generator=generator)


def identity(inputs, n_classes):
    return torch.nn.Identity()


def nothing(inputs, n_classes):
    return None


@pytest.fixture
def scratch_registry(monkeypatch):
    monkeypatch.setattr(registry, "_MODELS", dict(registry._MODELS))


def test_these_are_the_models():
    assert set(models.names()) >= {*IMAGE_MODELS, "ncf"}  # pages that run as tests may have added theirs
    assert models.names() == tuple(sorted(models.names()))


def test_the_public_names_are_these():
    assert set(models.__all__) == {"build", "expected_value", "names", "register"}


@pytest.mark.parametrize("inputs", [DIGITS, FASHION, CIFAR, {"kind": "image", "shape": [2, 9, 11]}])
@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_images_of_any_size_become_logits(name, inputs):
    logits = models.build(name, inputs, 7)(batch(inputs, n_rows=2))
    assert logits.shape == (2, 7) and logits.dtype == torch.float32 and torch.isfinite(logits).all()


@every_model
def test_the_gradient_reaches_every_parameter(name, inputs):
    model = models.build(name, inputs, 3)
    weight = torch.randn(32, 3, generator=torch.Generator().manual_seed(2))
    (model(batch(inputs, n_rows=32)) * weight).sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None and parameter.grad.abs().sum() > 0, parameter_name


@every_model
def test_the_seed_decides_every_bit_of_the_weights(name, inputs):
    first, again, other = (models.build(name, inputs, 3, seed=seed).state_dict() for seed in (5, 5, 6))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)


def test_the_default_device_does_not_change_the_weights():
    expected = models.build("linear", ROW, 3).state_dict()
    with torch.device("meta"):
        built = models.build("linear", ROW, 3).state_dict()
    assert all(torch.equal(expected[key], built[key]) for key in expected)


@every_model
def test_building_leaves_the_global_generator_alone(name, inputs):
    before = torch.get_rng_state()
    models.build(name, inputs, 3, seed=9)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_global_generator_does_not_change_the_weights():
    state = torch.get_rng_state()
    built = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        built.append(models.build("linear", ROW, 3)[1].weight)
    torch.set_rng_state(state)
    assert torch.equal(*built)


@every_model
def test_a_model_can_be_copied_and_its_state_is_plain_tensors(name, inputs):
    model = models.build(name, inputs, 3).eval()
    copied, other = copy.deepcopy(model), models.build(name, inputs, 3, seed=1).eval()
    assert all(type(value) is torch.Tensor for value in model.state_dict().values())
    pointers = [parameter.data_ptr() for parameter in model.parameters()]
    assert len(set(pointers)) == len(pointers)  # nothing is shared, so safetensors can store it
    other.load_state_dict(model.state_dict())
    x = batch(inputs)
    assert torch.equal(model(x), copied(x)) and torch.equal(model(x), other(x))


@pytest.mark.parametrize("name", IMAGE_MODELS)
def test_the_memory_format_does_not_change_the_answer(name):
    inputs = {"kind": "image", "shape": [3, 16, 16]}
    model, x = models.build(name, inputs, 4), batch(inputs)
    changed = copy.deepcopy(model).to(memory_format=torch.channels_last)
    logits = model(x)
    assert torch.allclose(changed(x.to(memory_format=torch.channels_last)), logits, atol=1e-4)
    assert torch.allclose(copy.deepcopy(model)(x.to(memory_format=torch.channels_last)), logits, atol=1e-4)


def test_a_description_may_come_from_json():
    inputs = json.loads(json.dumps(FASHION))
    assert torch.equal(models.build("linear", inputs, 3)[1].weight, models.build("linear", FASHION, 3)[1].weight)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(InvalidArgument, match=r"'inception-small'.*'resnet18-v2'.*got 'resnet19'"):
        models.build("resnet19", CIFAR, 10)


@pytest.mark.parametrize(
    ("name", "inputs", "message"),
    [
        ("resnet18-v2", PAIRS, r'resnet18-v2 takes inputs \{"kind": "image", "shape".* got kind \'ids\''),
        ("small-conv", ROW, r'"image".* got kind \'vector\''),
        ("ncf", FASHION, r'ncf takes inputs \{"kind": "ids", "sizes": \[n_users, n_items\]\}, got kind \'image\''),
        ("mlp", PAIRS, r'"image".* or .*"vector".* got kind \'ids\''),
    ],
)
def test_a_model_says_what_it_takes(name, inputs, message):
    with pytest.raises(InvalidArgument, match=message):
        models.build(name, inputs, 10)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"kind": "text"}, "inputs must be one of .*Got kind 'text'"),
        ({"kind": ["image"]}, "inputs must be one of"),
        ({"shape": [1, 8, 8]}, "inputs must be one of"),
        ([1, 8, 8], "inputs must be one of .*Got kind list"),
        ({"kind": "image"}, r'"shape": \[C, H, W\]\}, got shape=None'),
        ({"kind": "image", "shape": [28, 28]}, r"got shape=\[28, 28\]"),
        ({"kind": "image", "shape": [1, 28, 0]}, r"inputs\['shape'\] must be at least 1, got 0"),
        ({"kind": "image", "shape": [1, 28, "28"]}, r"inputs\['shape'\] must be an integer, got str"),
        ({"kind": "ids", "sizes": [6040]}, r"got sizes=\[6040\]"),
        ({"kind": "vector", "size": 2.5}, r"inputs\['size'\] must be an integer, got float"),
        ({"kind": "vector", "size": [3]}, r"inputs\['size'\] must be an integer, got list"),
    ],
)
def test_a_wrong_description_is_refused(inputs, message):
    with pytest.raises(InvalidArgument, match=message):
        models.build("linear", inputs, 10)


@pytest.mark.parametrize("n_classes", [1, 2.0, "3"])
def test_there_are_at_least_two_classes(n_classes):
    with pytest.raises(InvalidArgument, match="n_classes must be"):
        models.build("linear", ROW, n_classes)


@pytest.mark.parametrize("seed", [-1, 2**63, None])
def test_a_seed_is_an_integer_torch_can_take(seed):
    with pytest.raises(InvalidArgument, match="seed must be"):
        models.build("linear", ROW, 2, seed=seed)


def test_register_adds_a_model(scratch_registry):
    @models.register("twice-linear", takes=("vector",))
    def twice_linear(inputs, n_classes):
        return torch.nn.Linear(inputs["size"], n_classes)

    assert "twice-linear" in models.names()
    first, again = (models.build("twice-linear", ROW, 3, seed=4) for _ in range(2))
    assert first(batch(ROW)).shape == (4, 3) and torch.equal(first.weight, again.weight)
    with pytest.raises(InvalidArgument, match="twice-linear takes inputs"):
        models.build("twice-linear", FASHION, 3)


def test_without_takes_a_registered_model_may_read_anything(scratch_registry):
    models.register("anything")(identity)
    for inputs in (ROW, FASHION, PAIRS):
        assert isinstance(models.build("anything", inputs, 3), torch.nn.Identity)


def test_a_name_keeps_its_meaning(scratch_registry):
    with pytest.raises(InvalidArgument, match="'linear' is a model already"):
        models.register("linear")(identity)
    assert models.build("linear", ROW, 3)[1].out_features == 3


def test_a_notebook_cell_may_run_twice(scratch_registry):
    for size in (2, 3):

        def cell(inputs, n_classes, size=size):
            return torch.nn.Linear(size, n_classes)

        models.register("cell")(cell)
    assert models.build("cell", ROW, 2).in_features == 3


def test_a_registered_function_must_return_a_module(scratch_registry):
    models.register("nothing")(nothing)
    with pytest.raises(InvalidArgument, match="registered as 'nothing' must return a torch"):
        models.build("nothing", ROW, 3)


def test_an_unknown_kind_cannot_be_taken():
    with pytest.raises(InvalidArgument, match="takes must be one of 'image', 'ids', 'vector', got 'text'"):
        models.register("reader", takes=("text",))
