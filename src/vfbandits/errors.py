"""Every error of the library, and nothing else.

::

    VFBanditsError
    ├── SettingError        a bandit or a federation cannot be built from these settings
    ├── NotBlindError       the setting looks at coordinates, which a rotation mixes
    ├── ContextError        contexts have a wrong shape, a NaN, or a missing owner
    ├── ArmError            the arms of a round are empty, repeated or unknown
    ├── MaskError           a mask or a share does not fit
    ├── SecureSumError      a value does not fit the ring, or a pad would be used twice
    ├── SharesError         a value does not fit secret shares, or a slot would be used twice
    │   ├── RollbackError      a server of secret shares runs on an older copy of its disk
    │   └── StockError         no dealt window is left, or the next one is damaged
    ├── UnknownDecisionError  a reward names a decision that is not open
    │   └── UnknownEventError  there is no event of this id, or it is no longer kept
    │       └── ErasedEventError  the event was erased with its user
    ├── ConflictError       a request contradicts an earlier one
    ├── RewardError         a reward is not a number, or contradicts an earlier one
    ├── NumericalError      the state is no longer finite
    ├── DatasetError        a data file is missing, damaged, or of another form
    ├── SnapshotError       a file is not a snapshot of this version, or is damaged
    ├── JournalError        the journal cannot be written, or is damaged
    │   ├── RecordError        one record is damaged or missing; those around it can be read
    │   └── JournalLossError   records that were acknowledged are missing from the end
    ├── ConfigError         a configuration file is not what a service needs
    ├── AccessRecordError   the record of what was answered is damaged or cannot be written
    ├── FeatureError        a feature store or a transformer does not give what was declared
    ├── IdentityError       a certificate, key or signature belongs to somebody else
    ├── EnvelopeError       a sealed mask share is not for this reader, epoch or shape
    ├── WireError           bytes or a message that the protocol does not allow
    ├── HandshakeError      two participants do not agree on the terms of their federation
    └── LinkError           the other end is gone, or refused

A message says what was wanted, then what came.  It never holds a feature, a mask or a key.
"""


class VFBanditsError(Exception):
    """Base of all errors that this library raises on purpose."""


class SettingError(VFBanditsError, ValueError):
    """A bandit or a federation cannot be built from these settings."""


class NotBlindError(VFBanditsError, ValueError):
    """The setting treats coordinates one by one, so masked and plain runs would differ."""


class ContextError(VFBanditsError, ValueError):
    """Contexts have a wrong shape, a value that is not finite, or a missing owner."""


class ArmError(VFBanditsError, ValueError):
    """The arms of a round are empty, repeated or unknown."""


class MaskError(VFBanditsError, ValueError):
    """A mask or a share does not fit."""


class SecureSumError(VFBanditsError, ValueError):
    """A value does not fit the ring, or a pad would cover two different messages."""


class SharesError(VFBanditsError, ValueError):
    """A value does not fit secret shares, or a slot or a word would be used for a second value."""


class RollbackError(SharesError):
    """A server of secret shares runs on an older copy of its disk: going on could show masks."""


class StockError(SharesError):
    """The next dealt window is missing, damaged, or of another deal."""


class UnknownDecisionError(VFBanditsError, LookupError):
    """A reward names a decision that is not open."""


class UnknownEventError(UnknownDecisionError):
    """There is no event of this id, or it is no longer kept."""


class ErasedEventError(UnknownEventError):
    """The event was erased with its user: it is not ranked again, and takes no reward."""


class ConflictError(VFBanditsError, ValueError):
    """A request contradicts an earlier one."""


class RewardError(VFBanditsError, ValueError):
    """A reward is not a finite number, or contradicts one that was already learnt."""


class NumericalError(VFBanditsError, ArithmeticError):
    """A score is not finite, although every input was."""


class DatasetError(VFBanditsError, ValueError):
    """A data file is missing, damaged, or of another form than expected."""


class SnapshotError(VFBanditsError, ValueError):
    """A file is not a snapshot that this version can read, or it is damaged."""


class JournalError(VFBanditsError, RuntimeError):
    """The journal cannot be written or read, or it is damaged."""


class RecordError(JournalError):
    """One record is damaged or missing; those around it can be read."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class JournalLossError(JournalError):
    """Records that were acknowledged are missing from the end of the journal."""


class ConfigError(VFBanditsError, ValueError):
    """A configuration file is not what a service needs."""


class AccessRecordError(VFBanditsError, RuntimeError):
    """The record of what a participant answered is damaged, or cannot be written."""


class FeatureError(VFBanditsError, ValueError):
    """A feature store or a transformer does not give what was declared."""


class IdentityError(VFBanditsError, ValueError):
    """A certificate, key or signature belongs to somebody else, or has expired."""


class EnvelopeError(VFBanditsError, ValueError):
    """A sealed mask share is damaged, or not for this reader, epoch or shape."""


class WireError(VFBanditsError, ValueError):
    """Bytes, or a message, that the protocol does not allow."""


class HandshakeError(VFBanditsError, ValueError):
    """Two participants do not agree on the terms of their federation."""


class LinkError(VFBanditsError, ConnectionError):
    """The other end of a link is gone, or refused."""
