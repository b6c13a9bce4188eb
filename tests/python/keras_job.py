"""Trains with Keras, is interrupted, and resumes: keras_job.py DIRECTORY, with KERAS_BACKEND. test_keras.py starts it."""
import pathlib
import sys

import conftest  # noqa: F401: where the package is
import keras
import numpy

import ckpt
from ckpt.integrations.keras import SaveCallback


def model_of():
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    layers = [keras.Input((4,), name="in"), keras.layers.Dense(8, name="first", activation="relu"), keras.layers.Dropout(0.5, name="drop"),
              keras.layers.BatchNormalization(name="norm"), keras.layers.Dense(1, name="last")]
    model = keras.Sequential(layers, name="net")
    model.compile(optimizer=keras.optimizers.AdamW(0.01), loss="mse", metrics=["mae"])
    return model


def fit(model, last, **options):
    data = numpy.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    history = model.fit(data, data.sum(1), batch_size=8, epochs=last, shuffle=False, verbose=0, **options)
    return {epoch: history.history["loss"][i] for i, epoch in enumerate(history.epoch)}


def weights(model):
    return [numpy.asarray(keras.ops.convert_to_numpy(variable)) for variable in [*model.variables, *model.optimizer.variables]]


def main(directory):
    whole = model_of()
    expected = fit(whole, 6)
    first, saves = model_of(), SaveCallback(directory / "run", every=2, staging=1 << 26)
    assert saves.restore(first) == 0
    fit(first, 3, callbacks=[saves])  # saved after epochs 2 and 3
    with ckpt.open(directory / "run") as checkpoint:
        assert checkpoint["model.trainable_variables.net.first.kernel"].shape == (4, 8) and checkpoint.info.step == 24
        assert set(checkpoint.info.metrics) == {"loss", "mae"} and checkpoint.objects["epochs"] == 3
    numpy.random.seed(99)
    again, saves = model_of(), SaveCallback(directory / "run", staging=1 << 26)
    epochs = saves.restore(again)
    assert epochs == 3
    assert fit(again, 6, initial_epoch=epochs, callbacks=[saves]) == {epoch: expected[epoch] for epoch in (3, 4, 5)}
    assert all(numpy.array_equal(a, b) for a, b in zip(weights(whole), weights(again)))
    other = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="other")], name="net")
    for wrong, part in ((other, "not compiled"), (keras.Sequential([keras.layers.Dense(3)]), "not built")):
        raises(part, lambda: saves.restore(wrong))
    other.compile(optimizer="adam", loss="mse")
    raises("have other variables: model.trainable_variables.net.other.kernel", lambda: saves.restore(other))
    other = model_of()  # the same variables, but of the optimizer
    other.compile(optimizer="sgd", loss="mse")
    before = [value.copy() for value in weights(other)]
    raises("have other variables: model.optimizer_variables", lambda: saves.restore(other))
    assert all(numpy.array_equal(a, b) for a, b in zip(before, weights(other)))


def raises(part, call):
    try:
        call()
    except ckpt.Usage as reason:
        assert part in str(reason), reason
    else:
        raise AssertionError("did not raise")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
