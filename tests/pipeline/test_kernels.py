"""The choice of kernels: in the key by the recipe's word, and by what a person sets beside it."""


def statuses(made):
    return {record.status for record in made.values()}


def test_a_variable_that_chooses_kernels_counts_where_the_recipe_leaves_the_choice(
    toy, monkeypatch
):
    toy.recipe()
    first = toy.run()
    assert {record.circumstances["kernels"] for record in first.values()} <= {"portable", "own"}
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    # Portable kernels do not ask for it.
    assert toy.run() == {}
    monkeypatch.delenv("MKL_CBWR")
    assert statuses(toy.run("run.kernels=fast")) == {"succeeded"}
    assert toy.run("run.kernels=fast") == {}
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    made = toy.run("run.kernels=fast")
    assert statuses(made) == {"succeeded"}
    assert made["first"].components["runtime"]["MKL_CBWR"] == "COMPATIBLE"
    monkeypatch.delenv("MKL_CBWR")
    assert toy.run("run.kernels=fast") == {}
