"""Places for inboxes: in memory and in a real PostgreSQL, plain and encrypted."""

from journals import KEY, OnPostgres, query

from vfbandits.journal.inbox.memory import InboxRecords, MemoryInbox
from vfbandits.journal.inbox.postgres import PostgresInbox


class InboxInMemory:
    def __init__(self, key=None):
        self.state, self.key = InboxRecords(), key

    def open(self):
        return MemoryInbox(self.state, key=self.key)

    def records(self):
        return [queued.record for queued in self.state.by_key.values()]

    def put_record(self, record):
        (queued,) = self.state.by_key.values()
        queued.record = record

    def put_key_of(self, one, other):
        """Swap the records of two rows."""
        first, second = (
            list(self.state.by_key.values())[one],
            list(self.state.by_key.values())[other],
        )
        first.record, second.record = second.record, first.record


class InboxOnPostgres:
    def __init__(self, key=None):
        self.on_postgres, self.key = OnPostgres(None, key), key
        self.on_postgres.open().close()  # creates the journal
        self.open().close()

    def open(self):
        return PostgresInbox(self.on_postgres.url, name=self.on_postgres.name, key=self.key)

    def rows(self):
        sql = "SELECT id, record FROM vfb_inbox WHERE journal = %s ORDER BY id"
        return query(sql, self.on_postgres.id)

    def records(self):
        return [record for _, record in self.rows()]

    def put_record(self, record):
        query("UPDATE vfb_inbox SET record = %s WHERE journal = %s", record, self.on_postgres.id)

    def put_key_of(self, one, other):
        rows = self.rows()
        for (number, _), (_, record) in ((rows[one], rows[other]), (rows[other], rows[one])):
            query("UPDATE vfb_inbox SET record = %s WHERE id = %s", record, number)


INBOXES = {
    f"{kind.__name__}{'Sealed' if key else ''}": (kind, key)
    for kind in (InboxInMemory, InboxOnPostgres)
    for key in (None, KEY)
}


def make_place(name):
    kind, key = INBOXES[name]
    return kind(key)
