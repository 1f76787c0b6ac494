"""Where the arm meets the user in the Criteo experiment: outer addition or outer product.

With addition, theta·x = α·u + β·w: the user's part is the same for all arms, and the greedy arm
is the same for all users.  It is what the paper did.  The product is what personalises.
"""

from vfbandits.core.arrays import Matrix, Vector


def outer_addition(user: Vector, arm_features: Matrix) -> Matrix:
    """Rows with the entries u_i + w_j of each arm, (n_arms, n_user·n_arm_features).

    >>> import numpy as np
    >>> outer_addition(np.array([1.0, 2.0]), np.array([[10.0, 20.0]])).tolist()
    [[11.0, 21.0, 12.0, 22.0]]
    """
    sums = user[:, None] + arm_features[:, None, :]
    return sums.reshape(len(arm_features), -1)


def outer_product(user: Vector, arm_features: Matrix) -> Matrix:
    """Rows with the entries u_i·w_j: what layout "outer" makes without ever building it.

    >>> import numpy as np
    >>> outer_product(np.array([1.0, 2.0]), np.array([[10.0, 20.0]])).tolist()
    [[10.0, 20.0, 20.0, 40.0]]
    """
    products = user[:, None] * arm_features[:, None, :]
    return products.reshape(len(arm_features), -1)
