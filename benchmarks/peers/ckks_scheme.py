"""CKKS from TenSEAL's SEAL interface, with the parameters of an encrypted round.

Ring dimension 8192, where 218 bits of modulus are allowed at 128 bits of security (SEAL checks).
Two primes of 60 bits carry a round: three factors of 36 bits of scale multiply up to 108 of these
120, so nothing is rescaled on the way.  A third, of 36 bits, is there for products that must come
back to the scale of their factors.  TenSEAL's own vectors are not used: they cannot rotate, and
their matrix product takes one vector at a time.
"""

from collections.abc import Iterable
from typing import Literal, TypeAlias

import numpy as np
from tenseal import sealapi  # type: ignore[import-not-found]

from benchmarks.contestant import Matrix
from benchmarks.peers.ckks_layout import Slots

DEGREE = 8192
SECURITY_BITS = 128
SCALE = 2.0**36
ROUND_BITS = [60, 60]
SPARE_BITS = [36]
KEY_BITS = [60]
Level: TypeAlias = Literal["round", "spare"]


class Ckks:
    """All keys in one place; who may use which is the business of the round."""

    def __init__(self, rotations: list[int], *, has_spare: bool) -> None:
        self.modulus_bits = ROUND_BITS + SPARE_BITS * has_spare + KEY_BITS
        parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.CKKS)
        parameters.set_poly_modulus_degree(DEGREE)
        parameters.set_coeff_modulus(sealapi.CoeffModulus.Create(DEGREE, self.modulus_bits))
        context = sealapi.SEALContext(parameters, True, sealapi.SEC_LEVEL_TYPE.TC128)  # noqa: FBT003
        if not context.parameters_set():
            raise ValueError(f"{SECURITY_BITS} bits of security wanted, got {self.modulus_bits}")
        keys = sealapi.KeyGenerator(context)
        public, self._relin_keys = sealapi.PublicKey(), sealapi.RelinKeys()
        self._rotation_keys = sealapi.GaloisKeys()
        keys.create_public_key(public)
        keys.create_relin_keys(self._relin_keys)
        keys.create_galois_keys(rotations, self._rotation_keys)
        top = context.first_context_data()
        self.spare_prime = float(top.parms().coeff_modulus()[-1].value())
        below = top.next_context_data() if has_spare else top
        self._levels = {"spare": top.parms_id(), "round": below.parms_id()}
        self._encoder = sealapi.CKKSEncoder(context)
        self._encryptor = sealapi.Encryptor(context, public)
        self._decryptor = sealapi.Decryptor(context, keys.secret_key())
        self._evaluator = sealapi.Evaluator(context)

    def encode(
        self, slots: Slots, scale: float = SCALE, *, level: Level = "round"
    ) -> sealapi.Plaintext:
        """Turn slots into a plain polynomial."""
        plain = sealapi.Plaintext()
        self._encoder.encode(slots.tolist(), self._levels[level], scale, plain)
        return plain

    def encrypt(self, plain: sealapi.Plaintext) -> sealapi.Ciphertext:
        """Encrypt under the public key, as every participant can."""
        encrypted = sealapi.Ciphertext()
        self._encryptor.encrypt(plain, encrypted)
        return encrypted

    def decrypt(self, encrypted: sealapi.Ciphertext) -> Matrix:
        """Read the real parts, as only the key holder can; products need no relinearisation."""
        plain = sealapi.Plaintext()
        self._decryptor.decrypt(encrypted, plain)
        return np.array(self._encoder.decode_double(plain))

    def add(self, terms: Iterable[sealapi.Ciphertext]) -> sealapi.Ciphertext:
        """Add ciphertexts."""
        total = sealapi.Ciphertext()
        self._evaluator.add_many(list(terms), total)
        return total

    def shift(self, encrypted: sealapi.Ciphertext, plain: sealapi.Plaintext) -> sealapi.Ciphertext:
        """Add a plain polynomial."""
        total = sealapi.Ciphertext()
        self._evaluator.add_plain(encrypted, plain, total)
        return total

    def multiply(
        self, encrypted: sealapi.Ciphertext, other: sealapi.Ciphertext | sealapi.Plaintext
    ) -> sealapi.Ciphertext:
        """Multiply slot by slot, by a ciphertext or by a plain polynomial."""
        product = sealapi.Ciphertext()
        if isinstance(other, sealapi.Plaintext):
            self._evaluator.multiply_plain(encrypted, other, product)
        else:
            self._evaluator.multiply(encrypted, other, product)
        return product

    def rotate(self, encrypted: sealapi.Ciphertext, steps: int) -> sealapi.Ciphertext:
        """Move every slot ``steps`` places towards the front; a product is relinearised before."""
        if not steps:
            return encrypted
        rotated = sealapi.Ciphertext()
        if encrypted.size() > 2:
            self._evaluator.relinearize_inplace(encrypted, self._relin_keys)
        self._evaluator.rotate_vector(encrypted, steps, self._rotation_keys, rotated)
        return rotated

    def spend_spare(self, product: sealapi.Ciphertext) -> sealapi.Ciphertext:
        """Relinearise a product of two ciphertexts and divide it by the spare prime."""
        rescaled = sealapi.Ciphertext()
        self._evaluator.relinearize_inplace(product, self._relin_keys)
        self._evaluator.rescale_to_next(product, rescaled)
        return rescaled


def size_bytes(*encrypted: sealapi.Ciphertext) -> int:
    """What ciphertexts weigh on the wire, as plain machine words."""
    words: list[int] = [
        one.size() * one.poly_modulus_degree() * one.coeff_modulus_size() for one in encrypted
    ]
    return 8 * sum(words)
